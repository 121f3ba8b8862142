//! A table that grows, and whose entries never move.

/// Entries per chunk: a constant, because entries are looked up all the time, and small, because many loops have a single connection.
pub(crate) const CHUNK: usize = 16;

/// A table of entries by number. An entry is made once and never moves.
pub(crate) struct Chunks<T> {
    made: Vec<Box<[T; CHUNK]>>,
    /// Memory for more chunks.
    room: Vec<Vec<T>>,
    length: u32,
}

impl<T> Chunks<T> {
    /// Makes a table with memory for `capacity` entries.
    pub(crate) fn with_capacity(capacity: usize) -> Chunks<T> {
        let mut chunks = Chunks { made: Vec::new(), room: Vec::new(), length: 0 };
        chunks.reserve(capacity);
        chunks
    }

    pub(crate) fn reserve(&mut self, capacity: usize) {
        while (self.made.len() + self.room.len()) * CHUNK < capacity {
            self.room.push(Vec::with_capacity(CHUNK));
        }
        self.made.reserve(self.room.len());
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> u32 {
        self.length
    }

    /// Adds an entry and returns its number. The entries of a new chunk are all made by `empty`.
    pub(crate) fn add(&mut self, empty: impl FnMut() -> T) -> u32 {
        let number = self.length;
        self.length = number.checked_add(1).expect("fewer than 4 billion entries");
        if number as usize == self.made.len() * CHUNK {
            let mut chunk = self.room.pop().unwrap_or_else(|| Vec::with_capacity(CHUNK));
            chunk.resize_with(CHUNK, empty);
            let Ok(chunk) = chunk.into_boxed_slice().try_into() else { unreachable!("it is as long as a chunk") };
            self.made.push(chunk);
        }
        number
    }

    #[inline(always)]
    pub(crate) fn at(&mut self, number: u32) -> &mut T {
        &mut self.made[number as usize / CHUNK][number as usize % CHUNK]
    }

    /// Returns the entry of this number; None if there is none yet.
    #[inline(always)]
    pub(crate) fn get(&mut self, number: u32) -> Option<&mut T> {
        Some(&mut self.made.get_mut(number as usize / CHUNK)?[number as usize % CHUNK])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_the_capacity_and_entries_as_they_are_added() {
        for (capacity, room) in [(1, 16), (16, 16), (1500, 1504)] {
            let mut chunks = Chunks::with_capacity(capacity);
            assert_eq!(chunks.room.iter().map(Vec::capacity).sum::<usize>(), room);
            assert_eq!(chunks.len(), 0);
            assert_eq!((chunks.add(|| 7), *chunks.at(0), chunks.get(room as u32)), (0, 7, None));
            assert_eq!((chunks.len(), chunks.room.len()), (1, room / CHUNK - 1));
        }
    }

    #[test]
    fn an_entry_stays_where_it_is() {
        let mut chunks = Chunks::with_capacity(0);
        let first = chunks.add(String::new);
        let at: *const String = chunks.at(first);
        (0..1000).for_each(|_| _ = chunks.add(String::new));
        assert!(std::ptr::eq(chunks.at(first), at));
    }
}
