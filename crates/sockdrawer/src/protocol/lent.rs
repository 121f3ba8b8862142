//! The filters of layers for bytes that no protocol sees: lent with a leased connection, or where they are for a relay.

use super::{Input, Note, Output};
use std::io;

/// Reason why a peer is refused whose record no filter will decode.
pub(crate) const TOO_LONG: &str = "the layer cannot decode what the peer sent: its record is too long";
/// Reason why a peer is refused that makes a filter's answers pile up.
pub(crate) const READS_NO_ANSWERS: &str = "the peer has the layer answer, and does not read its answers";

/// A filter, and the filters of the layers within.
pub(crate) trait Pass {
    /// Takes wire bytes, appends plain bytes, and appends to `back` what the peer must get. Called again until it answers
    /// [`Decoded::NeedMore`].
    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> io::Result<Decoded>;

    /// Appends the wire bytes that carry `plain`.
    fn encode(&mut self, plain: &[u8], wire: &mut Output);

    /// Appends the wire bytes that tell the peer that no more comes, unless that was done.
    fn goodbye(&mut self, wire: &mut Output);

    /// Called when the wire's stream ended, and all of it was decoded. An error if that may be a truncation attack.
    fn wire_ended(&mut self) -> io::Result<()>;
}

/// Decodes until there are so many plain bytes, their end, or no whole record. Returns the filter's answer, and whether it has said why it refused.
pub(crate) fn decode_all(
    filters: &mut dyn Pass,
    wire: &mut Input<'_>,
    (plain, most): (&mut Vec<u8>, usize),
    back: &mut Output,
) -> (io::Result<Decoded>, bool) {
    loop {
        let (before, said) = (plain.len(), back.bytes.len());
        match filters.decode(wire, plain, back) {
            Ok(Decoded::Plain) if plain.len() < most => {}
            Err(refused) => {
                // Bytes that a filter refuses it may have appended before it knew.
                plain.truncate(before);
                return (Err(refused), back.bytes.len() > said);
            }
            decoded => return (decoded, false),
        }
    }
}

/// Filters outside of their layers.
pub(crate) trait Lend: Pass + Send {
    /// Returns the note that brings the filter back to its protocol, with plain bytes that were not read and the lessee's own note.
    fn give_back(self: Box<Self>, plain: Vec<u8>, note: Note) -> Note;
}

/// The result of decoding wire bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// Nothing more can be done until more bytes arrive.
    NeedMore,
    /// Plain bytes were appended.
    Plain,
    /// The peer said goodbye: no more plain bytes come.
    Ended,
}

/// Filters that the bytes of a relay pass; opaque outside of this library.
pub struct Passage<'a>(pub(crate) &'a mut dyn Pass);

impl std::fmt::Debug for Passage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passage").finish_non_exhaustive()
    }
}

/// The filter that a layer lends, and what it left; opaque outside of this library.
pub struct Lent {
    pub(crate) filter: Box<dyn Lend>,
    /// Bytes that were decoded before, and not taken.
    pub(crate) plain: Vec<u8>,
    /// True where the peer has said goodbye.
    pub(crate) ended: bool,
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lent").field("plain", &self.plain.len()).field("ended", &self.ended).finish_non_exhaustive()
    }
}
