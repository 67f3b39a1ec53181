//! CPU time and memory of a process, from procfs.

use anyhow::{Context, Result};
use std::fs;
use std::time::Duration;

/// CPU time in user and system mode since the process started.
pub fn cpu(process: u32) -> Result<Duration> {
    let stat = read(process, "stat")?;
    let ticks = cpu_ticks(&stat).with_context(|| format!("no CPU time in {stat:?}"))?;
    Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

/// Peak resident memory since the start of the process or since [`reset_peak_memory`], in KiB.
pub fn peak_memory(process: u32) -> Result<u32> {
    let status = read(process, "status")?;
    peak_kib(&status).with_context(|| format!("no VmHWM in {status:?}"))
}

/// Resets the peak to the current memory.
pub fn reset_peak_memory(process: u32) -> Result<()> {
    let file = path(process, "clear_refs");
    fs::write(&file, "5").with_context(|| file)
}

fn read(process: u32, file: &str) -> Result<String> {
    let file = path(process, file);
    fs::read_to_string(&file).with_context(|| file)
}

fn path(process: u32, file: &str) -> String {
    format!("/proc/{process}/{file}")
}

/// The sum of utime and stime, the 12th and 13th field after the program's name, which is in parentheses
/// and may contain any character.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn peak_kib(status: &str) -> Option<u32> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    value.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{cpu, cpu_ticks, peak_kib, peak_memory, reset_peak_memory};

    #[test]
    fn cpu_time_is_parsed_after_any_program_name() {
        let fields = "S 1 7 7 0 -1 4194560 100 0 0 0 250 31 9 9 20 0 4 0 100 1000000 500";
        for name in ["operator", "a) S 1 (b", "two words"] {
            assert_eq!(cpu_ticks(&format!("7 ({name}) {fields}")), Some(281), "{name}");
        }
        assert_eq!(cpu_ticks("7 (operator) S 1 7"), None);
    }

    #[test]
    fn peak_memory_is_the_high_water_mark() {
        let status = "Name:\toperator\nVmPeak:\t  99999 kB\nVmHWM:\t   20480 kB\nVmRSS:\t   10240 kB\n";
        assert_eq!(peak_kib(status), Some(20480));
        assert_eq!(peak_kib("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn own_process_has_cpu_time_and_a_resettable_peak() {
        let own = std::process::id();
        let touched = vec![1_u8; 64 << 20];
        let peak = peak_memory(own).unwrap();
        assert!(peak > 64 << 10, "{peak} KiB after touching {} bytes", touched.len());
        drop(touched);
        reset_peak_memory(own).unwrap();
        assert!(peak_memory(own).unwrap() < peak);
        assert!(cpu(own).is_ok());
        assert!(cpu(0).is_err());
    }
}
