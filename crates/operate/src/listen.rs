//! Places where a pool listens, as they are written: an address with options and layers, or the name of sockets that systemd has made.

use crate::layers::{self, PROXY_PROTOCOL};
use crate::setting::{Text, Values, Wrong};
use crate::users;
use sockdrawer::Address;
use sockdrawer::listening::{ListenOptions, Listening};
use sockdrawer_catalog::count;

/// Prefix of the names of sockets that systemd has made.
const SYSTEMD: &str = "systemd:";
/// The options of an address.
const KEYS: [&str; 7] = ["limit", "v6-only", "freebind", "transparent", "device", "mode", "owner"];

/// The setting of where a pool listens.
pub(crate) const LISTEN: Text = Text { form: "ADDR[,KEY=VALUE]...", check: |text| parse(text).map(drop) };

/// Place where a pool listens.
#[derive(Clone, Debug)]
pub(crate) struct At {
    pub(crate) place: Place,
    limit: Option<usize>,
    options: ListenOptions,
    /// Settings that its layers are made of.
    pub(crate) layers: Values,
}

/// An address, or the name of sockets that systemd has made.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Address(Address),
    Systemd(String),
}

impl At {
    /// Returns the network device whose connections alone come here.
    pub(crate) fn device(&self) -> Option<&str> {
        self.options.device.as_deref()
    }

    /// Returns the listening socket for a pool's configuration, with the limit and the options.
    pub(crate) fn listening(&self, mut listening: Listening) -> Listening {
        listening.limit = self.limit;
        listening.options(self.options.clone())
    }

    /// Returns whether this is written of that listener.
    pub(crate) fn is_of(&self, listening: &Listening) -> bool {
        match &self.place {
            Place::Address(address) => *address == listening.address,
            Place::Systemd(name) => listening.name.as_ref() == Some(name),
        }
    }
}

/// Returns the names of what may be written with an address, beside it.
pub(crate) fn keys() -> Vec<&'static str> {
    KEYS.into_iter().chain(layers::names()).collect()
}

/// Returns the text of a listener that a file has as a table, of the key and the values of each entry.
///
/// # Errors
/// What cannot be written so.
pub(crate) fn text(entries: &[(&str, Vec<String>)]) -> Result<String, String> {
    let Some((_, address)) = entries.iter().find(|(key, _)| *key == "address") else {
        return Err("has no address: write { address = \"127.0.0.1:9000\", ... }".to_owned());
    };
    let mut text = address.join(",");
    for (key, values) in entries.iter().filter(|(key, _)| *key != "address") {
        for value in values {
            let mut parts: Vec<&str> = value.split(',').collect();
            if *key != PROXY_PROTOCOL && parts.len() > 1 {
                return Err(format!("{key} = {value:?}: a comma ends a value here: use a name without one"));
            }
            // Only what looks like an option is read as one.
            parts.sort_by_key(|part| part.contains('='));
            text += &format!(",{key}={}", parts.join(","));
        }
    }
    Ok(text)
}

/// Returns the values of which layers are made: those of the pool, and those of each of its listeners in order.
pub(crate) fn sets(values: &Values) -> Vec<Values> {
    let listeners = values.list("listen").iter().map(|text| parse(text).map(|at| at.layers).unwrap_or_default());
    std::iter::once(values.clone()).chain(listeners).collect()
}

/// Returns where the pool listens, but for what cannot be read.
fn all(values: &Values) -> Vec<At> {
    values.list("listen").iter().flat_map(|text| parse(text)).collect()
}

impl Values {
    /// Returns the address of each listener of the pool, but of sockets that systemd has made, and the values of the layers that it has of its own.
    #[must_use]
    pub fn listeners(&self) -> Vec<(Option<Address>, Values)> {
        let listener = |at: At| match at.place {
            Place::Address(address) => (Some(address), at.layers),
            Place::Systemd(_) => (None, at.layers),
        };
        all(self).into_iter().map(listener).collect()
    }
}

/// Checks that layers are written for the whole pool or at its listeners: of both it would not be clear which come first.
pub(crate) fn check_layers(values: &Values) -> Result<(), Wrong> {
    let of_pool = layers::names().find(|name| values.has(name));
    let at = sets(values).iter().skip(1).position(|set| !set.set.is_empty());
    match of_pool.zip(at) {
        Some((name, at)) => {
            let text = &values.list("listen")[at];
            Err((
                "listen",
                format!("{text} has layers of its own, and {name} is for all addresses: write {name} at those that have it"),
            ))
        }
        None => Ok(()),
    }
}

/// Takes over the layers of a running pool's listeners where they are made of what they were: others would be another generation.
pub(crate) fn keep_layers(listening: &mut [Listening], wanted: &Values, running: &[Listening], before: &Values) {
    let (wanted, before) = (all(wanted), all(before));
    for new in listening.iter_mut().filter(|new| !new.layers.is_empty()) {
        let of = |all: &[At]| all.iter().find(|at| at.is_of(new)).map(|at| at.layers.clone());
        let old = running.iter().find(|old| old.address == new.address);
        if let Some(old) = old.filter(|_| of(&wanted) == of(&before)) {
            new.layers = old.layers.clone();
        }
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
    let mut at = At { place, limit: None, options: ListenOptions::default(), layers: Values::default() };
    let mut given = given.into_iter().rev().peekable();
    while let Some((key, value)) = given.next() {
        let mut value = value.to_owned();
        while let Some((_, more)) = given.next_if(|(next, _)| key == PROXY_PROTOCOL && *next == "from") {
            value += &format!(",from={more}");
        }
        set(&mut at, key, &value)?;
    }
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
        _ => {
            let setting = layers::settings().find(|setting| setting.name == key);
            let setting = setting.ok_or_else(|| crate::setting::unknown("option of an address", key, &keys()))?;
            let value = setting.parse(value).map_err(|why| format!("{key}={value}: {why}"))?;
            at.layers.set(setting, value);
        }
    }
    Ok(())
}

/// Permissions, as chmod(1) takes them in numbers.
fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
    mode.ok_or_else(|| format!("mode={text}: write up to 777 in octal, such as mode=0660"))
}

/// Reads a user, a group, or both: `USER`, `USER:GROUP` or `:GROUP`, each by name or number.
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

    #[test]
    fn an_address_has_layers_of_its_own() {
        let at =
            parse("[::]:9443,limit=5,tls-cert=a.pem,tls-key=a.key,tls-cert=b.pem,proxy-protocol=unix,from=::1,from=10.0.0.0/8");
        let at = at.expect("it is right");
        assert_eq!((at.limit, at.layers.list("tls-cert")), (Some(5), &["a.pem".to_owned(), "b.pem".to_owned()][..]));
        assert_eq!(at.layers.text("proxy-protocol"), Some("unix,from=::1,from=10.0.0.0/8"));
        let entries = [
            ("limit", vec!["5".to_owned()]),
            ("address", vec!["[::]:9443".to_owned()]),
            ("tls-cert", vec!["a.pem".to_owned(), "b.pem".to_owned()]),
            ("proxy-protocol", vec!["from=::1,unix".to_owned()]),
        ];
        let expected = "[::]:9443,limit=5,tls-cert=a.pem,tls-cert=b.pem,proxy-protocol=unix,from=::1";
        assert_eq!(text(&entries).as_deref(), Ok(expected));
        assert!(text(&entries[..1]).is_err_and(|why| why.contains("has no address")));
        assert!(text(&[entries[1].clone(), ("tls-cert", vec!["a,b".to_owned()])]).is_err_and(|why| why.contains("comma")));
        for (text, why) in [
            ("127.0.0.1:1,tls-certs=a", "did you mean `tls-cert`?"),
            ("127.0.0.1:1,proxy-protocol=10.0.0.0/8", "proxy-protocol=10.0.0.0/8: has"),
            ("127.0.0.1:1,backlog=7", "unknown option of an address `backlog`"),
        ] {
            assert!(options(text).is_err_and(|error| error.contains(why)), "{text}: {:?}", options(text));
        }
    }

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
