//! The order in which targets are due.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The way in which clients are spread over targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Each client goes to the target with the fewest clients for its weight; in turn where several have as few.
    #[default]
    Least,
    /// Targets are due in turn, by weight.
    Rotate,
    /// The peer's IP address decides: a peer gets its target again, and one that goes or comes moves no other peers than its own share. Peers without an IP address are
    /// one peer.
    Hash,
}

impl Balance {
    /// The words for them, in the order of their definition.
    pub const WORDS: [&str; 3] = ["least", "rotate", "hash"];
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Balance::WORDS[*self as usize])
    }
}

impl FromStr for Balance {
    type Err = String;

    fn from_str(text: &str) -> Result<Balance, String> {
        let all = [Balance::Least, Balance::Rotate, Balance::Hash];
        let known = all.into_iter().find(|balance| balance.to_string() == text);
        known.ok_or_else(|| format!("unknown balance `{text}`: there are {}", Balance::WORDS.join(", ")))
    }
}

/// Returns the candidate whose turn it is: that which has had the fewest for its weight. One that had none for a while has no arrears, if it `is_beside` that one.
pub(super) fn rotate(
    turns: &mut [f64],
    candidates: &[usize],
    weight: impl Fn(usize) -> f64,
    is_beside: impl Fn(usize, usize) -> bool,
) -> usize {
    let least = candidates.iter().map(|number| turns[*number]).fold(f64::INFINITY, f64::min);
    let first = candidates.iter().copied().find(|number| turns[*number] <= least).expect("there are candidates");
    let served = turns[first];
    turns[first] += 1.0 / weight(first);
    // Time goes on for those that are left out, too, and not for those of other clients.
    let left_out = |number: &usize| !candidates.contains(number) && is_beside(*number, first);
    (0..turns.len()).filter(left_out).for_each(|number| turns[number] = turns[number].max(served));
    first
}

/// Returns the candidate with the highest draw, which depends on peer and target alone ("rendezvous hashing").
pub(super) fn hash(
    candidates: &[usize],
    peer: Option<IpAddr>,
    weight: impl Fn(usize) -> f64,
    address: impl Fn(usize) -> String,
) -> usize {
    let peer = peer.map_or_else(Vec::new, |peer| match peer.to_canonical() {
        IpAddr::V4(peer) => peer.octets().to_vec(),
        IpAddr::V6(peer) => peer.octets().to_vec(),
    });
    let draw = |number: usize| {
        let mixed = mix(&[peer.as_slice(), address(number).as_bytes()].concat());
        // Between 0 and 1, without either.
        let uniform = ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -weight(number) / uniform.ln()
    };
    let best = candidates.iter().copied().max_by(|one, other| draw(*one).total_cmp(&draw(*other)));
    best.expect("there are candidates")
}

/// Mixes bytes by FNV-1a and the finish of SplitMix64: the next build, and another proxy, draw alike.
fn mix(bytes: &[u8]) -> u64 {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let mut mixed = bytes.iter().fold(0xcbf2_9ce4_8422_2325, fnv);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
