//! Users and groups of this machine, by name and by number, from all places that the system has them in (nsswitch.conf(5)).

/// Returns the number of the user with this name.
pub(crate) fn user(name: &str) -> Option<u32> {
    uzers::get_user_by_name(name).map(|user| user.uid())
}

/// Returns the number of the group with this name.
pub(crate) fn group(name: &str) -> Option<u32> {
    uzers::get_group_by_name(name).map(|group| group.gid())
}

/// Returns a user as people know it: by name and number where it has a name.
pub(crate) fn in_words(uid: u32) -> String {
    match uzers::get_user_by_uid(uid) {
        Some(user) => format!("{} (uid {uid})", user.name().display()),
        None => format!("uid {uid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_known_by_name_and_number() {
        assert_eq!((user("root"), group("root")), (Some(0), Some(0)));
        assert_eq!((user("no-such-user"), group("no-such-group")), (None, None));
        assert_eq!(in_words(0), "root (uid 0)");
        // A number that no system gives out.
        assert_eq!(in_words(u32::MAX - 7), format!("uid {}", u32::MAX - 7));
    }
}
