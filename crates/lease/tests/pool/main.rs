//! Pools as programs use them: by threads and tasks, which end in any way.

mod books;
mod ends;
mod storm;
mod uses;
