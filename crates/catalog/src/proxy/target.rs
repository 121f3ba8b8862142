//! A target of a proxy, as it is written, and for which clients it is.

use super::hello::ClientHello;
use sockdrawer::Address;
use std::fmt;
use std::str::FromStr;

/// A target as it is written: an address, then `weight=N`, `limit=N`, `backup`, `sni=NAME` or `alpn=NAME` with commas between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The address at which it listens.
    pub address: Address,
    /// The share of the clients that it gets, beside the other targets' weights. 0: new clients go elsewhere, those that it has stay.
    pub weight: u32,
    /// Maximum of clients that it has at once from this process, of all pools together. Others wait for a place. None: no maximum.
    pub limit: Option<usize>,
    /// True for a target that gets clients only while every target that is no backup is left out.
    pub backup: bool,
    /// The names that clients ask for by TLS (SNI), for which it is: each as it is, or `*.` and its end. None: it is for clients that ask for a name that no other has, or for none.
    pub sni: Vec<String>,
    /// The protocols of which a client has to offer one (ALPN). None: any, and clients that offer none.
    pub alpn: Vec<String>,
}

/// The letters of the name that matched, then whether one of the protocols did: more is a better fit.
pub(super) type Fit = (usize, bool);

impl Target {
    /// Creates a target of weight 1.
    #[must_use]
    pub fn new(address: Address) -> Target {
        Target { address, weight: 1, limit: None, backup: false, sni: Vec::new(), alpn: Vec::new() }
    }

    /// Reads a target by the name of a host: each address that the name has is a target of its own. Blocks on the system's resolver when the host is a name other
    /// than `localhost`, which is 127.0.0.1.
    ///
    /// # Errors
    /// The text is no target, or the name does not resolve.
    pub fn all(text: &str) -> Result<Vec<Target>, String> {
        let (address, _) = text.split_once(',').unwrap_or((text, ""));
        let mut all = Address::parse_all(address).map_err(|error| error.to_string())?;
        all.truncate(if address.starts_with("localhost") { 1 } else { usize::MAX });
        all.into_iter().map(|address| Target::of(address, text)).collect()
    }

    /// Creates a target at this address, with the options behind the one in the text.
    fn of(address: Address, text: &str) -> Result<Target, String> {
        let mut parts = text.split(',');
        let written = parts.next().unwrap_or_default();
        let mut target = Target::new(address);
        for part in parts {
            match part.split_once('=') {
                Some(("weight", weight)) => {
                    let why = |_| format!("weight={weight} is no weight: write a number from 0 to 4294967295");
                    target.weight = weight.parse().map_err(why)?;
                }
                Some(("limit", limit)) => {
                    let limit = limit.parse().ok().filter(|limit| *limit > 0);
                    let why = || format!("{part} is no limit: write how many clients the target may have, 1 or more");
                    target.limit = Some(limit.ok_or_else(why)?);
                }
                Some(("sni", name)) => target.sni.push(server_name(name)?),
                Some(("alpn", name)) if is_word(name) => target.alpn.push(name.to_owned()),
                None if part == "backup" => target.backup = true,
                _ => {
                    let there_are = "weight=N, limit=N, backup, sni=NAME, alpn=NAME";
                    return Err(format!("unknown `{part}` behind {written}: there are {there_are}"));
                }
            }
        }
        Ok(target)
    }

    /// Returns true for a target of some clients alone, whose first bytes say so.
    #[must_use]
    pub fn is_for_some(&self) -> bool {
        !self.sni.is_empty() || !self.alpn.is_empty()
    }

    /// Returns how well it fits a client that asks for this, as the name with the most letters in common does best; None: not at all.
    pub(super) fn fit(&self, hello: &ClientHello) -> Option<Fit> {
        let asked = hello.name.as_deref().map(|name| name.trim_end_matches('.'));
        // As many letters as they have in common: a whole name has more than its end.
        let common = |name: &String| match name.strip_prefix('*') {
            Some(end) => asked.filter(|asked| asked.len() > end.len() && asked.ends_with(end)).map(|_| end.len()),
            None => asked.filter(|asked| asked == name).map(str::len),
        };
        let named = match self.sni.iter().filter_map(common).max() {
            None if self.sni.is_empty() => 0,
            longest => longest?,
        };
        let offered = self.alpn.iter().any(|protocol| hello.protocols.iter().any(|offered| offered == protocol.as_bytes()));
        (offered || self.alpn.is_empty()).then_some((named, offered))
    }

    /// Returns how many clients it may have.
    pub(super) fn most(&self) -> usize {
        self.limit.unwrap_or(usize::MAX)
    }

    /// Returns whether both are for the same clients.
    #[must_use]
    pub fn is_like(&self, other: &Target) -> bool {
        (&self.sni, &self.alpn) == (&other.sni, &other.alpn)
    }

    /// Returns whether some clients may get either of the two.
    pub(super) fn is_beside(&self, other: &Target) -> bool {
        let share = |one: &[String], other: &[String]| one == other || one.iter().any(|name| other.contains(name));
        share(&self.sni, &other.sni) && share(&self.alpn, &other.alpn)
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Reads a name, or the end of names behind `*.`.
fn server_name(text: &str) -> Result<String, String> {
    let plain = text.strip_prefix("*.").unwrap_or(text);
    let is_name = is_word(plain) && plain.is_ascii() && !plain.contains('*');
    let why =
        || format!("sni={text} is no name: write one as in sni=db.example.com, or the end of names as in sni=*.example.com");
    is_name.then(|| text.to_ascii_lowercase()).ok_or_else(why)
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let (address, _) = text.split_once(',').unwrap_or((text, ""));
        Target::of(address.parse().map_err(|error| format!("{error}"))?, text)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        if self.weight != 1 {
            write!(f, ",weight={}", self.weight)?;
        }
        if let Some(limit) = self.limit {
            write!(f, ",limit={limit}")?;
        }
        if self.backup {
            f.write_str(",backup")?;
        }
        self.sni.iter().try_for_each(|name| write!(f, ",sni={name}"))?;
        self.alpn.iter().try_for_each(|name| write!(f, ",alpn={name}"))
    }
}
