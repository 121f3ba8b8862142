//! The marks by which flags of a connection move to another process.

use crate::event_loop::slot::Flags;
use crate::ipc::record::Marks;

type Mark = fn(&mut Marks) -> &mut bool;

/// Flags that move with a connection, and the mark that carries each. What [`Flags::FULL`] holds besides depends on the service.
const MARKS: [(Flags, Mark); 6] = [
    (Flags::CONNECTED, |marks| &mut marks.connected),
    (Flags::PAUSED, |marks| &mut marks.waiting),
    (Flags::HELD, |marks| &mut marks.held),
    (Flags::PEER_ENDED, |marks| &mut marks.peer_ended),
    (Flags::TOLD_ENDED, |marks| &mut marks.told_ended),
    (Flags::ENDING_OUTPUT, |marks| &mut marks.finishing),
];

/// Returns the marks that carry these flags.
pub(super) fn marks(flags: Flags) -> Marks {
    let mut marks = Marks { full: flags.any(Flags::FULL), ..Marks::default() };
    MARKS.iter().for_each(|(flag, mark)| *mark(&mut marks) = flags.any(*flag));
    marks
}

/// Returns the flags that these marks carry.
pub(super) fn marked(mut marks: Marks) -> Flags {
    let set = MARKS.iter().filter(|(_, mark)| *mark(&mut marks));
    set.fold(Flags::default(), |flags, (flag, _)| flags.union(*flag))
}
