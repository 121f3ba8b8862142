//! The limits that cgroups of version 1 and 2 set to a process: of each kind the nearest one on the way up from its own cgroup.

use crate::numbers::float;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Version 1 says "no limit" by a number of this size, or by one a page below it.
const UNLIMITED: u64 = 1 << 62;

/// Files of versions 1 and 2: the maximum of memory and its use, and the name of what can be dropped of that.
const MEMORY: [(&str, &str, &str); 2] = [
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ("memory.max", "memory.current", "inactive_file"),
];

/// The limits that apply to a process; None: there is none of this kind, or it cannot be seen from here.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    pub(crate) cpu: Option<Quota>,
    pub(crate) memory: Option<CgroupRoom>,
    pub(crate) tasks: Option<CgroupRoom>,
}

/// A quota of CPU time, and how often it was used up until now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quota {
    pub(crate) cpus: f64,
    /// The file that sets it.
    pub(crate) file: PathBuf,
    periods: u64,
    throttled: u64,
}

/// A maximum, and what is left of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CgroupRoom {
    pub(crate) max: u64,
    pub(crate) left: u64,
    /// The file that sets it.
    pub(crate) file: PathBuf,
}

/// Number of times that a quota stopped a process in a stretch of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Throttling {
    pub(crate) cpus: f64,
    pub(crate) file: PathBuf,
    pub(crate) periods: u64,
    pub(crate) throttled: u64,
}

/// The folders of a process' cgroup and those above it, the nearest first.
struct Way {
    folders: Vec<PathBuf>,
    is_v2: bool,
}

impl Limits {
    /// Reads those of this process.
    pub(crate) fn own() -> Limits {
        Limits::read(Path::new("/"), "self")
    }

    /// Reads those of another process.
    pub(crate) fn of(process: u32) -> Limits {
        Limits::read(Path::new("/"), &process.to_string())
    }

    /// Reads those of `process` on the machine whose files begin at `root`.
    fn read(root: &Path, process: &str) -> Limits {
        let text = |path: PathBuf| fs::read_to_string(root.join("proc").join(path)).unwrap_or_default();
        let (groups, mounts) = (text(Path::new(process).join("cgroup")), text("self/mountinfo".into()));
        let way = |controller| Way::of(root, &groups, &mounts, controller);
        Limits {
            cpu: way("cpu").and_then(|way| way.quota()),
            memory: way("memory").and_then(|way| way.memory()),
            tasks: way("pids").and_then(|way| way.tasks()),
        }
    }
}

impl Quota {
    /// Returns how often it stopped its processes since it was read.
    pub(crate) fn since(&self) -> Throttling {
        let now = self.file.parent().map_or((0, 0), counts);
        Throttling {
            cpus: self.cpus,
            file: self.file.clone(),
            periods: now.0.saturating_sub(self.periods),
            throttled: now.1.saturating_sub(self.throttled),
        }
    }
}

impl Throttling {
    /// Returns the part of the periods in which the quota was used up.
    pub(crate) fn share(&self) -> f64 {
        if self.periods == 0 { 0.0 } else { float(self.throttled) / float(self.periods) }
    }
}

impl CgroupRoom {
    /// Reads again what is left, of a maximum of memory.
    pub(crate) fn memory_left(&self) -> u64 {
        let used = self.file.parent().and_then(memory_used);
        self.max.saturating_sub(used.unwrap_or(0))
    }
}

/// Reads how much memory a cgroup uses. Pages of files that can be dropped at once are no use of it.
fn memory_used(folder: &Path) -> Option<u64> {
    MEMORY.iter().find_map(|(_, used, dropped)| {
        let used = number(&folder.join(used))?;
        Some(used.saturating_sub(entry(&folder.join("memory.stat"), dropped).unwrap_or(0)))
    })
}

impl Way {
    fn of(root: &Path, groups: &str, mounts: &str, controller: &str) -> Option<Way> {
        let named = |is: &dyn Fn(&str) -> bool| {
            groups.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                is(controllers).then_some(path)
            })
        };
        let has = |list: &str| list.split(',').any(|name| name == controller);
        // Both versions may be there; a controller belongs to one of them.
        let of_v1 = named(&has).zip(mount(mounts, "cgroup", &has));
        let is_v2 = of_v1.is_none();
        let (path, (mounted, at)) = match of_v1 {
            Some(found) => found,
            None => named(&str::is_empty).zip(mount(mounts, "cgroup2", &|_| true))?,
        };
        let at = root.join(at.trim_start_matches('/'));
        // A container that sees a part of the hierarchy sees its own cgroup as the mount itself.
        let path = Path::new(path);
        let below = path.strip_prefix(mounted).ok().filter(|below| below.components().all(|part| part.as_os_str() != ".."));
        let own = at.join(below.unwrap_or(Path::new("")).strip_prefix("/").unwrap_or(below.unwrap_or(Path::new(""))));
        let folders = own.ancestors().take_while(|folder| folder.starts_with(&at)).map(Path::to_owned).collect();
        Some(Way { folders, is_v2 })
    }

    fn quota(&self) -> Option<Quota> {
        let of = |folder: &PathBuf| {
            let (file, cpus) = if self.is_v2 {
                let file = folder.join("cpu.max");
                let text = fs::read_to_string(&file).ok()?;
                let (quota, period) = text.trim().split_once(' ')?;
                (file, quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
            } else {
                let file = folder.join("cpu.cfs_quota_us");
                let quota = number(&file)?;
                (file, float(quota) / float(number(&folder.join("cpu.cfs_period_us"))?))
            };
            let (periods, throttled) = counts(folder);
            (cpus > 0.0 && cpus.is_finite()).then_some(Quota { cpus, file, periods, throttled })
        };
        self.folders.iter().filter_map(of).min_by(|one, other| one.cpus.total_cmp(&other.cpus))
    }

    fn memory(&self) -> Option<CgroupRoom> {
        self.room(if self.is_v2 { MEMORY[1].0 } else { MEMORY[0].0 }, memory_used)
    }

    fn tasks(&self) -> Option<CgroupRoom> {
        self.room("pids.max", |folder| number(&folder.join("pids.current")))
    }

    fn room(&self, name: &str, used: impl Fn(&Path) -> Option<u64>) -> Option<CgroupRoom> {
        let of = |folder: &PathBuf| {
            let file = folder.join(name);
            let max = number(&file).filter(|max| *max < UNLIMITED)?;
            Some(CgroupRoom { max, left: max.saturating_sub(used(folder).unwrap_or(0)), file })
        };
        self.folders.iter().filter_map(of).min_by_key(|room| room.left)
    }
}

/// Returns which part of a hierarchy is mounted, and where.
fn mount<'a>(mounts: &'a str, kind: &str, has: &dyn Fn(&str) -> bool) -> Option<(&'a str, &'a str)> {
    mounts.lines().find_map(|line| {
        let (mount, device) = line.split_once(" - ")?;
        let mut device = device.split(' ');
        let is_it = device.next()? == kind && has(device.nth(1)?);
        let mut fields = mount.split(' ').skip(3);
        Some((fields.next()?, fields.next()?)).filter(|_| is_it)
    })
}

/// Returns the periods of a quota that passed, and those of them in which it was used up.
fn counts(folder: &Path) -> (u64, u64) {
    let count = |name| entry(&folder.join("cpu.stat"), name).unwrap_or(0);
    (count("nr_periods"), count("nr_throttled"))
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns a number of a table with lines such as `nr_periods 7`.
fn entry(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Makes the files of a machine below a folder that is removed when this is dropped.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str, files: &[(&str, &str)]) -> Machine {
            let root = std::env::temp_dir().join(format!("sockdrawer-cgroup-{name}-{}", std::process::id()));
            for (path, text) in files {
                let file = root.join(path);
                fs::create_dir_all(file.parent().expect("a folder")).expect("the folder can be made");
                fs::write(file, text).expect("the file can be written");
            }
            Machine(root)
        }

        fn limits(&self) -> Limits {
            Limits::read(&self.0, "7")
        }

        fn path(&self, path: &str) -> PathBuf {
            self.0.join(path)
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn the_nearest_limit_on_the_way_up_is_taken_in_version_2() {
        let machine = Machine::new(
            "v2",
            &[
                ("proc/7/cgroup", "0::/pod/box\n"),
                ("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"),
                ("sys/fs/cgroup/pod/box/cpu.max", "max 100000\n"),
                ("sys/fs/cgroup/pod/box/memory.max", "67108864\n"),
                ("sys/fs/cgroup/pod/box/memory.current", "40000000\n"),
                ("sys/fs/cgroup/pod/box/memory.stat", "anon 1\ninactive_file 10000000\n"),
                ("sys/fs/cgroup/pod/box/pids.max", "max\n"),
                ("sys/fs/cgroup/pod/cpu.max", "50000 100000\n"),
                ("sys/fs/cgroup/pod/cpu.stat", "usage_usec 9\nnr_periods 100\nnr_throttled 10\n"),
                ("sys/fs/cgroup/pod/memory.max", "134217728\n"),
                ("sys/fs/cgroup/pod/memory.current", "134217727\n"),
                ("sys/fs/cgroup/pod/pids.max", "20\n"),
                ("sys/fs/cgroup/pod/pids.current", "18\n"),
            ],
        );
        let Limits { cpu, memory, tasks } = machine.limits();
        let cpu = cpu.expect("a quota");
        assert_eq!((cpu.cpus, &cpu.file), (0.5, &machine.path("sys/fs/cgroup/pod/cpu.max")));
        let pod = |name: &str| machine.path(&format!("sys/fs/cgroup/pod/{name}"));
        assert_eq!(
            memory,
            Some(CgroupRoom { max: 134_217_728, left: 1, file: pod("memory.max") }),
            "the pod's is nearly used up"
        );
        assert_eq!(tasks, Some(CgroupRoom { max: 20, left: 2, file: pod("pids.max") }));
        fs::write(pod("memory.current"), "0\n").expect("it can be written");
        let memory = machine.limits().memory.expect("the box's own");
        assert_eq!((memory.max, memory.left), (67_108_864, 37_108_864), "pages of files can be dropped");
        fs::write(pod("cpu.stat"), "nr_periods 118\nnr_throttled 26\n").expect("it can be written");
        let throttling = cpu.since();
        assert_eq!((throttling.periods, throttling.throttled, throttling.share() > 0.88), (18, 16, true));
    }

    #[test]
    fn a_container_sees_a_part_of_version_1() {
        let machine = Machine::new(
            "v1",
            &[
                ("proc/7/cgroup", "8:pids:/\n4:memory:/docker/ab\n1:cpu,cpuacct:/docker/ab\n0::/\n"),
                (
                    "proc/self/mountinfo",
                    "32 31 0:29 /docker/ab /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                     35 31 0:32 /docker/ab /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                     41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
                ),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n"),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n"),
            ],
        );
        let limits = machine.limits();
        assert_eq!(limits.cpu.map(|quota| quota.cpus), Some(1.5));
        assert_eq!((limits.memory, limits.tasks), (None, None), "none is set, and none is seen");
        fs::write(machine.path("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"), "-1\n").expect("it can be written");
        assert_eq!(machine.limits().cpu, None);
    }

    #[test]
    fn the_kernels_own_files_are_read() {
        let folder = PathBuf::from(format!("/sys/fs/cgroup/cpu/sockdrawer-test-{}", std::process::id()));
        let set = fs::create_dir(&folder).and_then(|()| fs::write(folder.join("cpu.cfs_quota_us"), "50000"));
        if let Err(error) = set {
            eprintln!("skipped: no cgroup of version 1 can be made here: {error}");
            drop(fs::remove_dir(&folder));
            return;
        }
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat is everywhere");
        fs::write(folder.join("cgroup.procs"), child.id().to_string()).expect("the process can be moved");
        let limits = Limits::of(child.id());
        drop(child.stdin.take());
        child.wait().expect("it ends with its input");
        fs::remove_dir(&folder).expect("no process is left in it");
        assert_eq!(limits.cpu.map(|quota| (quota.cpus, quota.file)), Some((0.5, folder.join("cpu.cfs_quota_us"))));
    }
}
