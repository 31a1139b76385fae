//! Figures of a process from the kernel.

use std::fs;

use keylapse_bench::Fault;

/// The clock ticks of `/proc/<pid>/stat`: fixed for all programs on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the processor time that all of its threads have used, in seconds.
pub(crate) fn cpu(pid: u32) -> Result<f64, Fault> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name may contain any character, and ends with the last parenthesis.
    let behind_name = stat.rsplit_once(')').ok_or("a stat without a name")?.1;
    let mut fields = behind_name.split_ascii_whitespace().skip(11);
    let mut ticks = || -> Result<f64, Fault> { Ok(fields.next().ok_or("a short stat")?.parse()?) };
    Ok((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

/// Returns its resident memory, in MB.
pub(crate) fn rss_mb(pid: u32) -> Result<f64, Fault> {
    status(pid, "VmRSS:")
}

/// Returns the peak of its resident memory, in MB.
pub(crate) fn peak_mb(pid: u32) -> Result<f64, Fault> {
    status(pid, "VmHWM:")
}

fn status(pid: u32, name: &str) -> Result<f64, Fault> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("a status without memory")?;
    let kb: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kb * 1024.0 / 1e6)
}
