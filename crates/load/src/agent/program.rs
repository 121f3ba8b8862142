//! The identity of this program: an agent must be of this very one, because the two speak in forms that are of one build.

use super::frames::AgentHello;
use crate::machine::Machine;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::sync::OnceLock;

/// The file of this program, also once its path has another.
pub(super) const FILE: &str = "/proc/self/exe";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Digits of a hash that people compare.
const SHORT: usize = 12;

pub(super) fn hello(machine: Machine) -> AgentHello {
    AgentHello { version: VERSION.to_owned(), hash: hash().to_owned(), machine }
}

/// Returns the SHA-256 of the file of this program, in hexadecimal digits; empty where it cannot be read.
pub(super) fn hash() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| read(FILE).unwrap_or_default())
}

fn read(path: &str) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(format!("{:x}", hasher.finalize()))
}

/// Returns why an agent of this kind cannot be used. On another kind of CPU it has other code, of an equal version.
pub(super) fn refuses(agent: &AgentHello) -> Option<String> {
    let of = |hello: &AgentHello| format!("{} ({})", hello.version, hello.hash.get(..SHORT).unwrap_or("unknown hash"));
    let this = hello(Machine::this());
    let is_alike = agent.machine.architecture == this.machine.architecture;
    let fits = agent.version == this.version && (!is_alike || agent.hash == this.hash);
    (!fits).then(|| {
        let remedy = if is_alike { "--push copies this program there" } else { "install this version there" };
        format!("its sockdrawer is {}, this one is {}: {remedy}", of(agent), of(&this))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_very_program_is_taken_but_for_other_cpus() {
        let this = hello(Machine::this());
        assert_eq!((this.hash.len(), refuses(&this)), (64, None));
        let other = AgentHello { hash: "0".repeat(64), ..this.clone() };
        let why = refuses(&other).expect("another build");
        assert!(
            why.starts_with("its sockdrawer is 0.1.0 (000000000000), this one is 0.1.0 (") && why.contains("--push"),
            "{why}"
        );
        let machine = Machine { architecture: "other".into(), ..Machine::this() };
        assert_eq!(refuses(&AgentHello { machine: machine.clone(), ..other.clone() }), None);
        let old = AgentHello { version: "0.0.9".to_owned(), machine, ..other };
        assert!(refuses(&old).is_some_and(|why| why.contains("0.0.9") && why.contains("install this version")));
    }
}
