//! A store of keys. Its connections move to the next build, and so does its table, which all of them share; `crates/program/tests/shop.rs` proves it.
//!
//! `cargo run -p sockdrawer-program --example shop -- serve --listen 127.0.0.1:9000`, then `SET a 1`, `GET a` and `COUNT` by `nc 127.0.0.1 9000`.
use sockdrawer::{CannotRestore, CannotSave, Config, Context, Input, Peer, Protocol, Saved, Saver, Service, State, Step};
use sockdrawer_operate::Operated;
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard};

/// The table of all connections: clones are one.
#[derive(Clone, Default)]
pub(crate) struct Shop(Arc<Mutex<HashMap<String, String>>>);

/// A connection, with the number of lines that its client has said.
pub(crate) struct Customer {
    shop: Shop,
    lines: u64,
}

impl Shop {
    fn table(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().expect("no panic under the lock")
    }

    fn written(&self) -> Vec<u8> {
        let mut to = Saver::default();
        to.value(&*self.table()).expect("a table can be saved");
        to.written().to_vec()
    }

    fn read(&self, bytes: &[u8]) {
        *self.table() = Saved::new(bytes).value().expect("a table of this build or the last");
    }
}

impl Service for Shop {
    type Protocol = Customer;
    fn open(&self, _peer: &Peer) -> Customer {
        Customer { shop: self.clone(), lines: 0 }
    }
    /// Version 1 did not count lines. All connections move at once, so that no key is set in the old build after the table has gone.
    fn state(&self) -> State {
        State::of("shop", 2).reads(1..=2).together()
    }
    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Customer, CannotRestore> {
        let lines = if from.version() == 1 { 0 } else { from.u64()? };
        Ok(Customer { shop: self.clone(), lines })
    }
}

impl Protocol for Customer {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            self.lines += 1;
            match String::from_utf8_lossy(line).split(' ').collect::<Vec<_>>()[..] {
                ["SET", key, value] => {
                    self.shop.table().insert(key.to_owned(), value.to_owned());
                    writeln!(cx.out(), "OK");
                }
                ["GET", key] => writeln!(cx.out(), "= {}", self.shop.table().get(key).map_or("nothing", String::as_str)),
                ["COUNT"] => writeln!(cx.out(), "{} lines", self.lines),
                _ => writeln!(cx.out(), "ERR say SET key value, GET key or COUNT"),
            }
        }
        Step::Continue
    }
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.lines);
        Ok(())
    }
}

fn main() -> ExitCode {
    let shop = Shop::default();
    let (old, new) = (shop.clone(), shop.clone());
    let protocol = sockdrawer_operate::Protocol::new("shop", "a store of keys", move |_| Ok(Config::accept(shop.clone())));
    let operated = Operated::new("/etc/shop/shop.toml").version(env!("CARGO_PKG_VERSION")).protocol(protocol);
    sockdrawer_program::main("shop", operated.carry("table", move || old.written(), move |bytes| new.read(bytes)))
}
