//! The processes of a server with all that they started.

use crate::proc::{self, descriptor_limit, ids, open_descriptors};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Errno of the kernel for a process that has ended while it was asked for.
const ESRCH: i32 = 3;

/// Facts of the kernel about a process, in a line of /proc.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stat {
    pub(super) parent: u32,
    /// Moment at which it was started, in ticks of the kernel.
    pub(super) started: u64,
    /// CPU time of the process, and of those that it waited for, in ticks.
    pub(super) ticks: u64,
    pub(super) waited_for: u64,
    /// Page faults of those: more than none of each.
    pub(super) faults_waited_for: u64,
    /// Pages of it that are in memory.
    pub(super) pages: u64,
}

/// Reads the line of a process. None when it has ended.
pub(super) fn stat(id: u32) -> Option<Stat> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // Its name is in parentheses and may contain anything: the rest begins with the third field.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        parent: u32::try_from(field(4)?).ok()?,
        started: field(22)?,
        ticks: field(14)? + field(15)?,
        waited_for: field(16)? + field(17)?,
        faults_waited_for: field(11)?,
        pages: field(24)?,
    })
}

/// Processes that are there now, by their numbers.
pub(super) type Family = BTreeMap<u32, Stat>;

/// Returns these processes and all their descendants. Processes outside of the family are added to `others`, and are not asked for again while they
/// are there: to ask for all of a machine's processes takes milliseconds, for which requests wait where clients share the CPU.
pub(super) fn of(roots: &[u32], others: &mut BTreeSet<u32>) -> Family {
    let here: BTreeSet<u32> = ids("/proc").collect();
    others.retain(|id| here.contains(id));
    let all: BTreeMap<u32, Stat> = here.difference(others).filter_map(|id| Some((*id, stat(*id)?))).collect();
    // As many steps as there are processes: parents that ended meanwhile might have been replaced in a ring.
    let ancestors = |id: u32| std::iter::successors(Some(id), |id| Some(all.get(id)?.parent)).take(all.len() + 1);
    let belongs = |id: &u32| ancestors(*id).any(|id| roots.contains(&id));
    let (family, outside): (Family, Family) = all.iter().map(|(id, stat)| (*id, *stat)).partition(|(id, _)| belongs(id));
    others.extend(outside.into_keys());
    family
}

/// Returns the memory that was charged to these processes alone: a page that several share counts in parts. None where this user may not ask.
pub(super) fn proportional_bytes(family: &Family) -> Option<u64> {
    let mut sum = 0;
    for id in family.keys() {
        match fs::read_to_string(format!("/proc/{id}/smaps_rollup")) {
            Ok(text) => sum += proc::field(&text, "Pss").and_then(proc::kibibytes).unwrap_or(0),
            // It has ended.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH) => {}
            Err(_) => return None,
        }
    }
    Some(sum)
}

/// Returns the number of descriptors that the process with the fewest may still open. None where it is known of none.
pub(super) fn descriptors_left(family: &Family) -> Option<u64> {
    let left = |id: &u32| Some(descriptor_limit(*id)?.0.saturating_sub(open_descriptors(*id)?));
    family.keys().filter_map(left).min()
}

/// Returns the number of times that each thread was taken off its CPU so far, because it waited or because another had its turn.
pub(super) fn switches<'a>(tasks: impl Iterator<Item = &'a str>) -> BTreeMap<String, u64> {
    let count = |task: &str| {
        let status = proc::text(&format!("{task}/status"))?;
        let number = |name| proc::field(&status, name)?.parse::<u64>().ok();
        Some((task.to_owned(), number("voluntary_ctxt_switches")? + number("nonvoluntary_ctxt_switches")?))
    };
    tasks.filter_map(count).collect()
}

/// Returns the folders of all threads of these processes.
pub(super) fn tasks(family: &Family) -> Vec<String> {
    let of = |id: &u32| {
        let folder = format!("/proc/{id}/task");
        ids(&folder).map(|thread| format!("{folder}/{thread}")).collect::<Vec<_>>()
    };
    family.keys().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn children_belong_to_it_and_others_do_not() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat is everywhere");
        let this = std::process::id();
        let (mut others, mut outside) = (BTreeSet::new(), BTreeSet::new());
        let (family, of_child) = (of(&[this], &mut others), of(&[child.id()], &mut outside));
        assert!(family.contains_key(&this) && family.contains_key(&child.id()), "{family:?}");
        assert_eq!(of_child.keys().collect::<Vec<_>>(), [&child.id()]);
        assert!(proportional_bytes(&family) > proportional_bytes(&of_child));
        assert!(switches(tasks(&family).iter().map(String::as_str)).values().sum::<u64>() > 0);
        assert!(outside.contains(&this) && !outside.contains(&child.id()), "{outside:?}");
        let mut second = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat is everywhere");
        let later = of(&[this], &mut others);
        assert!(
            later.contains_key(&child.id()) && later.contains_key(&second.id()),
            "one that came later belongs to it: {later:?}"
        );
        second.kill().and_then(|()| second.wait()).expect("it can be ended");
        child.kill().and_then(|()| child.wait()).expect("it can be ended");
        assert!(of(&[child.id()], &mut outside).is_empty());
        outside.insert(child.id());
        of(&[this], &mut outside);
        assert!(!outside.contains(&child.id()), "its number may be given to another process");
        assert_eq!(proportional_bytes(&of_child), Some(0), "one that has ended has no memory");
    }
}
