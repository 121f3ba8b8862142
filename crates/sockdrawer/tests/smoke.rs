use sockdrawer::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
struct Echo;
impl Service for Echo { type Protocol = Echo; fn open(&self, _: &Peer) -> Echo { Echo } }
impl Protocol for Echo { fn received(&mut self, i: &mut Input<'_>, cx: &mut Context<'_>) -> Step { cx.send(i.bytes()); i.take_all(); Step::Continue } }
#[test]
fn echo() {
    let pool = Pool::start(Config::accept(Echo).listen("127.0.0.1:0".parse().unwrap()).loops(2)).unwrap();
    let Address::Tcp(addr) = pool.addresses()[0].clone() else { panic!() };
    for n in 0..200 {
        let mut c = TcpStream::connect(addr).unwrap();
        c.write_all(format!("hello {n}").as_bytes()).unwrap();
        c.shutdown(Shutdown::Write).unwrap();
        let mut s = String::new(); c.read_to_string(&mut s).unwrap();
        assert_eq!(s, format!("hello {n}"));
        if n % 10 == 0 { let mut c = pool.config(); c.behaviour = Echo.into(); c.loops = 1 + n / 10 % 3; let a = pool.reconfigure(c).unwrap(); println!("{} {:?}", a.plan, a.took); }
    }
    println!("{:#?}", pool.status());
    let d = pool.shutdown(Drain::within(Duration::from_secs(1)));
    println!("{d:?} {:?}", pool.status().counts);
    pool.join().unwrap();
}
