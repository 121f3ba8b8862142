//! The control socket of a run: a service of lines, one order each, that any program which can write to a Unix socket may speak.

use crate::orders::{ORDERS, Orders};
use sockdrawer::listening::Listening;
use sockdrawer::{Address, Config, Context, Error, Input, Model, Peer, Pool, Protocol, Service, Step};

/// A line is an order, not a letter.
const LONGEST: usize = 256;

/// Takes orders for a run at an address.
///
/// Each line is an [`Order`](crate::Order) in words, `status` or `help`, which tells the words. Each is answered by a line: `ok`, and where a
/// bound is in the way what is done instead; `error: ` and why, or for `status` the [`Progress`](crate::Progress) as JSON.
/// Of a Unix socket only this user and root may give orders, whatever the umask is.
///
/// ```
/// # use sockdrawer_load::{Orders, control};
/// # use std::io::{BufRead, BufReader, Write};
/// let orders = Orders::new();
/// let pool = control("127.0.0.1:0".parse()?, &orders)?;
/// let address = pool.addresses()[0].to_string();
/// let mut people = std::net::TcpStream::connect(address)?;
/// people.write_all(b"+100\n")?;
/// let mut answer = String::new();
/// BufReader::new(&people).read_line(&mut answer)?;
/// assert_eq!(answer, "ok\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When nobody can listen there.
pub fn control(at: Address, orders: &Orders) -> Result<Pool, Error> {
    let control = Control { orders: orders.clone() };
    let mut at = Listening::new(at);
    if let Address::Unix(_) = at.address {
        at.options.mode = Some(0o600);
    }
    Pool::start(Config::accept(control).model(Model::Loops).loops(1).workers(0).limit(16).listening(at))
}

struct Control {
    orders: Orders,
}

impl Service for Control {
    type Protocol = OrderLine;

    fn open(&self, _peer: &Peer) -> OrderLine {
        OrderLine { orders: self.orders.clone() }
    }
}

/// Connection to a client that gives orders.
struct OrderLine {
    orders: Orders,
}

impl OrderLine {
    fn answer(&self, line: &str) -> String {
        match line {
            "status" => serde_json::to_string(&self.orders.progress()).unwrap_or_else(|error| format!("error: {error}")),
            "help" => format!("{ORDERS}, status, help"),
            line => {
                let agent = line.strip_prefix("agent ").and_then(|rest| rest.trim().split_once(' '));
                let (name, order) = agent.map_or((None, line), |(name, order)| (Some(name), order));
                let order = match order.parse() {
                    Ok(order) => order,
                    Err(error) => return format!("error: {error}"),
                };
                let answer = name.map_or_else(|| self.orders.ask(order), |name| self.orders.ask_agent(name, order));
                answer.unwrap_or_else(|refused| format!("error: {refused}"))
            }
        }
    }
}

impl Protocol for OrderLine {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            let answer = match std::str::from_utf8(line) {
                Ok(line) if line.len() <= LONGEST => self.answer(line.trim()),
                _ => format!("error: that is no command; commands are {ORDERS}"),
            };
            writeln!(cx.out(), "{answer}");
        }
        if input.bytes().len() > LONGEST { Step::Close } else { Step::Continue }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orders::Order;
    use crate::series::Progress;
    use sockdrawer::testing::Driver;
    use std::time::Duration;

    #[test]
    fn each_line_is_an_order_and_has_an_answer() {
        let orders = Orders::new();
        let mut connection = Driver::open(Control { orders: orders.clone() });
        connection.receive_split(b"+100\r\n =2k\ninterval 250ms\nnext\n");
        assert_eq!(connection.sent(), b"ok\nok\nok\nok\n");
        let given = [Order::More(100), Order::Connections(2000), Order::Interval(Duration::from_millis(250)), Order::NextStage];
        assert_eq!(orders.take(), given.map(|order| (None, order)));
        connection.receive(b"agent b +5\nagent b\n");
        let answer = String::from_utf8(connection.sent()).expect("answers are text");
        assert!(
            answer.starts_with("error: no agent is called b: there are no agents\nerror: `agent b` is no command"),
            "{answer}"
        );
        connection.receive(b"faster\n\xff\n");
        let answer = String::from_utf8(connection.sent()).expect("answers are text");
        assert!(answer.starts_with("error: `faster` is no command") && answer.lines().count() == 2, "{answer}");
        orders.show(Progress { standing: 7, ..Progress::default() });
        connection.receive(b"status\n");
        let answer = String::from_utf8(connection.sent()).expect("answers are text");
        assert!(answer.contains(r#""standing":7"#), "{answer}");
        assert_eq!(orders.take(), []);
    }

    #[test]
    fn the_socket_is_of_its_user_alone() {
        let path = std::env::temp_dir().join(format!("sockdrawer-orders-{}", std::process::id()));
        let pool = control(Address::Unix(path.clone()), &Orders::new()).expect("a free path");
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).expect("it is there"));
        pool.shutdown(sockdrawer::Drain::within(std::time::Duration::ZERO));
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_line_without_an_end_ends_the_connection() {
        let mut connection = Driver::open(Control { orders: Orders::new() });
        connection.receive(&[b'x'; LONGEST + 1]);
        assert!(connection.closed().is_some());
    }
}
