//! Tables and settings of the kernel in /proc: names and values.

use crate::numbers::float;
use std::fs;
use std::time::Duration;

/// Returns the text of a file of the kernel; None where it is not there, or not for this user.
pub(crate) fn text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Returns the number of descriptors that this process may open, once its limit is raised as far as that goes.
pub(crate) fn descriptors() -> usize {
    sockdrawer::raise_descriptor_limit().unwrap_or(1024)
}

/// Returns the value behind `name:` in a table with a line for each.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// Converts a field such as `2048 kB` to bytes.
pub(crate) fn kibibytes(text: &str) -> Option<u64> {
    text.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns a field of /proc/meminfo, in bytes.
pub(crate) fn memory(name: &str) -> Option<u64> {
    field(&text("/proc/meminfo")?, name).and_then(kibibytes)
}

/// Returns the number of CPUs of this machine that are online, whichever of them this process may use.
pub(crate) fn cpus() -> usize {
    let online = text("/sys/devices/system/cpu/online").and_then(|list| listed(list.trim()));
    online.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Returns the number of items in a list such as `0-2,5`.
fn listed(list: &str) -> Option<usize> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (last.checked_sub(first)?).checked_add(1)
    };
    list.split(',').map(part).sum()
}

/// Returns the memory of this process that is not swapped out, in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    field(&text("/proc/self/status")?, "VmRSS").and_then(kibibytes)
}

/// Returns the part of this machine's memory that programs can still have.
pub(crate) fn memory_left() -> Option<f64> {
    Some(float(memory("MemAvailable")?) / float(memory("MemTotal")?))
}

/// Returns the CPU time that all programs of this machine have used, that of its host for others included; None where the kernel does not tell.
pub(crate) fn busy_time() -> Option<Duration> {
    let text = text("/proc/stat")?;
    let ticks: Vec<u64> =
        text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().filter_map(|part| part.parse().ok()).collect();
    // User, nice and system; steal is the eighth.
    let used = ticks.get(..3)?.iter().sum::<u64>() + ticks.get(7).unwrap_or(&0);
    (used > 0).then(|| Duration::from_secs_f64(float(used) / float(rustix::param::clock_ticks_per_second())))
}

/// Returns the memory of this process that no file has, in bytes: what it has made itself.
fn private_bytes() -> Option<u64> {
    field(&text("/proc/self/status")?, "RssAnon").and_then(kibibytes)
}

/// Growth of the private memory of this process from now on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    from: u64,
}

impl Growth {
    pub(crate) fn from_now() -> Growth {
        Growth { from: private_bytes().unwrap_or(0) }
    }

    pub(crate) fn bytes(self) -> u64 {
        private_bytes().unwrap_or(0).saturating_sub(self.from)
    }
}

/// Returns a counter of a table with two lines for each protocol: names, then values in one order.
pub(crate) fn counter(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(known, _)| *known == name)?.1.parse().ok()
}

/// Returns the number behind a word, as in `TCP: inuse 3 tw 7`.
pub(crate) fn behind(line: &str, word: &str) -> Option<u64> {
    let mut words = line.split_whitespace().skip_while(|known| *known != word);
    words.nth(1)?.parse().ok()
}

/// Returns a setting by its name as sysctl(8) writes it, such as `net.core.somaxconn`.
pub(crate) fn setting(name: &str) -> Option<String> {
    text(&format!("/proc/sys/{}", name.replace('.', "/"))).map(|value| value.trim().to_owned())
}

/// Returns a setting that is one number.
pub(crate) fn number(name: &str) -> Option<u64> {
    setting(name)?.parse().ok()
}

/// Returns the soft and the hard limit of a process's descriptors.
pub(crate) fn descriptor_limit(process: u32) -> Option<(u64, u64)> {
    let text = text(&format!("/proc/{process}/limits"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut values = line.split_whitespace().map(|value| match value {
        "unlimited" => Some(u64::MAX),
        value => value.parse().ok(),
    });
    Some((values.next()??, values.next()??))
}

/// Returns the number of descriptors that a process has. None: it is gone or hidden, or this user may not count them; kernels from 6.2 on tell every
/// user.
pub(crate) fn open_descriptors(process: u32) -> Option<u64> {
    let folder = format!("/proc/{process}/fd");
    match fs::metadata(&folder).ok()?.len() {
        // Kernels before 6.2 do not say, and 20,000 entries take milliseconds.
        0 => fs::read_dir(&folder).ok().map(|entries| entries.count() as u64),
        count => Some(count),
    }
}

/// Returns the entries of a folder of the kernel that are numbers.
pub(crate) fn ids(folder: &str) -> impl Iterator<Item = u32> {
    fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns how long a thread ran, by its folder in /proc; to the nanosecond when it sleeps.
pub(crate) fn scheduled(folder: &str) -> Option<Duration> {
    let text = fs::read_to_string(format!("{folder}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError};

    /// A test of this process that has many descriptors, which the others would count.
    pub(crate) static MANY_OPEN: Mutex<()> = Mutex::new(());

    #[test]
    fn cpus_are_listed_in_ranges() {
        assert_eq!(["0", "0-1", "0-2,5,7-8"].map(listed), [Some(1), Some(2), Some(6)]);
        assert_eq!(["", "0-", "2-1", "a"].map(listed), [None; 4]);
        assert!(cpus() >= std::thread::available_parallelism().map_or(1, usize::from));
    }

    #[test]
    fn a_field_is_behind_its_name() {
        let text = "processor\t: 0\nmodel name\t: A CPU @ 3: fast\nMemTotal:        2048 kB\n";
        assert_eq!(field(text, "model name"), Some("A CPU @ 3: fast"));
        assert_eq!(field(text, "MemTotal").and_then(kibibytes), Some(2_097_152));
        assert_eq!(field(text, "MemFree"), None);
        assert!(memory("MemTotal") > memory("MemAvailable"));
    }

    #[test]
    fn a_counter_is_found_by_its_name() {
        let snmp = "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm ActiveOpens PassiveOpens\nTcp: 1 12 345\nUdp: A\nUdp: 1\n";
        assert_eq!(counter(snmp, "Tcp", "PassiveOpens"), Some(345));
        assert_eq!((counter(snmp, "Tcp", "A"), counter("Tcp: PassiveOpens\n", "Tcp", "PassiveOpens")), (None, None));
        assert_eq!(counter("TcpExt: A\nTcpExt: 2\nTcp: A\nTcp: 1\n", "Tcp", "A"), Some(1));
        assert_eq!((behind("TCP: inuse 3 tw 7", "tw"), behind("TCP: inuse 3 tw", "tw")), (Some(7), None));
    }

    #[test]
    fn settings_are_read_by_their_names() {
        assert!(number("net.core.somaxconn").is_some_and(|most| most > 0));
        assert_eq!(setting("net.core.there_is_none"), None);
    }

    #[test]
    fn what_a_process_opens_is_counted() {
        let _alone = MANY_OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || open_descriptors(std::process::id()).expect("/proc");
        let before = open();
        let files: Vec<_> = (0..1_000).map(|_| fs::File::open("/dev/null").expect("/dev/null")).collect();
        // Other tests of this process open files too.
        assert!(open().abs_diff(before + 1_000) < 200);
        drop(files);
    }
}
