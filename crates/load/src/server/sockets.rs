//! Kernel memory of sockets.
//!
//! The kernel counts memory by the kind of its objects for the whole machine, not by process or network: both ends of a connection are
//! in it when they are on this machine, and so is what other programs open meanwhile. What is measured is the growth since the
//! beginning, of the objects that each socket has (`/proc/slabinfo`, which only root may read) and of pages with bytes under way
//! (`mem` of `/proc/net/sockstat`). Each socket has one name (dentry) besides; files have them too, so they are counted by the sockets.
//! Without root it is the growth of all the kernel's objects (`Slab` of `/proc/meminfo`), which says less.

use crate::proc;
use rustix::param::page_size;

/// Objects that each socket has one of, or each that is watched by epoll.
const OF_SOCKETS: [&str; 9] =
    ["TCP", "TCPv6", "UNIX", "UNIX-STREAM", "sock_inode_cache", "filp", "eventpoll_epi", "eventpoll_pwq", "tw_sock_TCP"];
const INODE: &str = "sock_inode_cache";
const NAME: &str = "dentry";

/// Returns the bytes of such objects on this machine.
pub(super) fn bytes() -> Option<u64> {
    let objects = proc::text("/proc/slabinfo").and_then(|text| of_objects(&text)).or_else(|| proc::memory("Slab"))?;
    let pages = proc::text("/proc/thread-self/net/sockstat").map_or(0, |text| buffer_pages(&text));
    Some(objects + pages * page_size() as u64)
}

/// Returns the bytes of the objects of sockets. The lines have the name, the objects in use, all objects, the size of one, and more.
fn of_objects(slabinfo: &str) -> Option<u64> {
    let (mut sum, mut sockets, mut name) = (0, None, 0);
    for line in slabinfo.lines() {
        let mut fields = line.split_whitespace();
        let Some(kind) = fields.next() else { continue };
        let (Some(used), Some(size)) = (fields.next(), fields.nth(1)) else { continue };
        let (Ok(used), Ok(size)) = (used.parse::<u64>(), size.parse::<u64>()) else { continue };
        if OF_SOCKETS.contains(&kind) {
            sum += used * size;
        }
        match kind {
            INODE => sockets = Some(used),
            NAME => name = size,
            _ => {}
        }
    }
    Some(sum + sockets? * name)
}

fn buffer_pages(sockstat: &str) -> u64 {
    sockstat.lines().filter(|line| line.starts_with("TCP")).filter_map(|line| proc::behind(line, "mem")).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_sockets_have_are_counted() {
        let slabinfo = "slabinfo - version: 2.1\n# name <active_objs> <num_objs> <objsize>\n\
            TCP 100 130 2368 13 8 : tunables 0 0 0\nsock_inode_cache 200 285 832 19 4 :\ndentry 9000 9999 192 21 1 :\nvm_area 5 5 9 :\n";
        assert_eq!(of_objects(slabinfo), Some(100 * 2368 + 200 * (832 + 192)), "a name for each socket, not those of files");
        assert_eq!(of_objects("TCP 100 130 2368\n"), None, "not a table of this kernel");
        assert_eq!(buffer_pages("sockets: used 13\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 7\nUDP: inuse 0 mem 3\n"), 7);
    }

    #[test]
    fn more_sockets_take_more() {
        let before = bytes();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let connect = |_| (std::net::TcpStream::connect(address).expect("it listens"), listener.accept().expect("it came"));
        let pairs: Vec<_> = (0..1_000).map(connect).collect();
        // 1,000 pairs take 5 to 8 MB; other programs may end meanwhile.
        assert!(bytes() > before.map(|before| before + 2_000_000), "{before:?} {:?}", bytes());
        drop(pairs);
    }
}
