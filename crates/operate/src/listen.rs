//! Where a pool listens, as it is written: an address with options, or the name of sockets that systemd has made.

use crate::users;
use sockdrawer::Address;
use sockdrawer::listening::{ListenOptions, Listening};
use sockdrawer_catalog::count;

/// Of sockets that systemd has made.
const SYSTEMD: &str = "systemd:";
/// The options of an address.
const KEYS: [&str; 7] = ["limit", "v6-only", "freebind", "transparent", "device", "mode", "owner"];

/// Where a pool listens.
#[derive(Clone, Debug)]
pub(crate) struct At {
    pub(crate) place: Place,
    limit: Option<usize>,
    options: ListenOptions,
}

/// An address, or the name of sockets that systemd has made.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Address(Address),
    Systemd(String),
}

impl At {
    /// The network device whose connections alone come here.
    pub(crate) fn device(&self) -> Option<&str> {
        self.options.device.as_deref()
    }

    /// For a pool's configuration.
    pub(crate) fn listening(&self, mut listening: Listening) -> Listening {
        listening.limit = self.limit;
        listening.options(self.options.clone())
    }
}

/// Reads `ADDR[,KEY=VALUE]...`.
pub(crate) fn parse(text: &str) -> Result<At, String> {
    let mut rest = text;
    let mut given = Vec::new();
    // A path may have commas: only what looks like an option ends it.
    while let Some((before, option)) = rest.rsplit_once(',') {
        let Some((key, value)) = option.split_once('=') else { break };
        given.push((key, value));
        rest = before;
    }
    let place = match rest.strip_prefix(SYSTEMD) {
        Some("") => return Err("names no socket: write systemd:NAME, with the FileDescriptorName of the socket unit".to_owned()),
        Some(name) => Place::Systemd(name.to_owned()),
        None => Place::Address(rest.parse().map_err(|error: sockdrawer::AddressError| error.to_string())?),
    };
    let mut at = At { place, limit: None, options: ListenOptions::default() };
    given.into_iter().rev().try_for_each(|(key, value)| set(&mut at, key, value))?;
    if matches!(at.place, Place::Systemd(_)) && at.options != ListenOptions::default() {
        return Err(format!("{rest} is bound already: limit is its only option here, set the others in the socket unit"));
    }
    Ok(at)
}

fn set(at: &mut At, key: &str, value: &str) -> Result<(), String> {
    let switch = || match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{key}={value}: write {key}=true or {key}=false")),
    };
    match key {
        "limit" => {
            let limit = count::parse(value).ok().and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
            at.limit = Some(limit.ok_or_else(|| format!("limit={value}: not a count of at least 1: write such as limit=500"))?);
        }
        "v6-only" => at.options.v6_only = switch()?,
        "freebind" => at.options.freebind = switch()?,
        "transparent" => at.options.transparent = switch()?,
        "device" => at.options.device = Some(value.to_owned()),
        "mode" => at.options.mode = Some(mode(value)?),
        "owner" => (at.options.user, at.options.group) = owner(value)?,
        _ => return Err(crate::setting::unknown("option of an address", key, &KEYS)),
    }
    Ok(())
}

/// Permissions, as chmod(1) takes them in numbers.
fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
    mode.ok_or_else(|| format!("mode={text}: write up to 777 in octal, such as mode=0660"))
}

/// A user, a group, or both: `USER`, `USER:GROUP` or `:GROUP`, each by name or number.
fn owner(text: &str) -> Result<(Option<u32>, Option<u32>), String> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    if user.is_empty() && group.is_empty() {
        return Err(format!("owner={text} names neither a user nor a group: write USER, USER:GROUP or :GROUP"));
    }
    let number = |name: &str, kind: &str, find: fn(&str) -> Option<u32>| match name {
        "" => Ok(None),
        _ => match name.parse().ok().or_else(|| find(name)) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("owner={text}: no {kind} is named {name} on this machine: name one that is, or its number")),
        },
    };
    Ok((number(user, "user", users::user)?, number(group, "group", users::group)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<ListenOptions, String> {
        parse(text).map(|at| at.options)
    }

    #[test]
    fn a_path_has_a_mode_and_an_owner() {
        let all = options("unix:/run/a,b.sock,mode=0660,owner=root:7").expect("it is right");
        assert_eq!((all.mode, all.user, all.group), (Some(0o660), Some(0), Some(7)));
        let group = options("unix:/run/a,owner=:root").expect("it is right");
        assert_eq!((group.mode, group.user, group.group), (None, None, Some(0)));
        assert_eq!(options("unix:/run/a,owner=65534").map(|all| (all.user, all.group)), Ok((Some(65_534), None)));
        for (text, why) in [
            ("unix:/a,mode=rw", "write up to 777 in octal"),
            ("unix:/a,mode=0888", "write up to 777 in octal"),
            ("unix:/a,mode=1777", "write up to 777 in octal"),
            ("unix:/a,mode=+660", "write up to 777 in octal"),
            ("unix:/a,owner=", "names neither a user nor a group"),
            ("unix:/a,owner=no-such-user", "no user is named no-such-user on this machine"),
            ("unix:/a,owner=root:no-such-group", "no group is named no-such-group on this machine"),
            ("unix:/a,modes=1", "did you mean `mode`?"),
        ] {
            assert!(options(text).is_err_and(|error| error.contains(why)), "{text}: {:?}", options(text));
        }
    }

    #[test]
    fn what_systemd_has_made_has_only_a_limit_here() {
        let at = parse("systemd:web,limit=5").expect("it is right");
        assert!(matches!(&at.place, Place::Systemd(name) if name == "web"));
        let listening = at.listening(Listening::new("127.0.0.1:1").named("web"));
        assert_eq!((listening.limit, listening.name.as_deref()), (Some(5), Some("web")));
        for text in ["systemd:web,mode=0660", "systemd:web,freebind=true"] {
            assert!(options(text).is_err_and(|why| why.contains("set the others in the socket unit")), "{text}");
        }
        assert!(options("systemd:").is_err_and(|why| why.contains("systemd:NAME")));
    }
}
