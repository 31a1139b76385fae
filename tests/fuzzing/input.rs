//! An input, taken from the front. (`arbitrary` does more, and would stand in the lock file of
//! everyone who uses the library.)

/// What is left of an input. Where nothing is left, numbers are zero.
pub(super) struct Input<'d>(pub(super) &'d [u8]);

impl<'d> Input<'d> {
    pub(super) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::from(self.byte()) % from.len()]
    }

    /// As many bytes as the next one says, if there are as many.
    pub(super) fn bytes(&mut self) -> &'d [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }
}
