//! Lines to one of several servers that fail.

use super::super::Stage;
use super::NodeLineFault;

impl NodeLineFault {
    /// Makes it happen, ends it, and puts it on record.
    pub async fn strike(self, stage: &Stage) {
        let (since, which) = (crate::clock::now(), usize::from(self.whose) % stage.lines.len());
        let node = &stage.group.nodes()[which];
        let owned = stage.group.owned_by(node).await;
        let line = &stage.lines[which];
        self.what.strike(line).await;
        line.heal().await;
        stage.record_outage(since, node, owned, &self.what);
    }
}
