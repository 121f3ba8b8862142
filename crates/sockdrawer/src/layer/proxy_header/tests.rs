use super::*;
use crate::layer::Layer;
use crate::protocol::{Closed, Context, Protocol, Service, Step};
use crate::testing::{Bounds, Driver};

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, Refused> {
    Header::parse(bytes)
}

fn why(bytes: &[u8]) -> String {
    parse(bytes).expect_err("it is wrong").to_string()
}

/// Returns a header of version 2 with this command, family and payload.
fn v2(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("it fits").to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &length, payload].concat()
}

/// 192.0.2.7:4321 to 198.51.100.1:443.
const V4: [u8; 12] = [192, 0, 2, 7, 198, 51, 100, 1, 0x10, 0xE1, 0x01, 0xBB];

fn four() -> Header {
    Header::proxied(at("192.0.2.7:4321"), at("198.51.100.1:443"))
}

fn six() -> Header {
    Header::proxied(at("[2001:db8::7]:4321"), at("[2001:db8::1]:443"))
}

#[test]
fn lines_of_the_specification_are_read() {
    let longest_4 = "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n";
    let longest_6 =
        "PROXY TCP6 ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n".replace("ffff:f...f:ffff", &["ffff"; 8].join(":"));
    let longest_unknown = longest_6.replace("TCP6", "UNKNOWN");
    assert_eq!((longest_4.len(), longest_6.len(), longest_unknown.len()), (56, 104, Header::MAX_V1));
    let cases = [
        ("PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", Some(at("192.168.0.1:56324"))),
        (longest_4, Some(at("255.255.255.255:65535"))),
        (&longest_6, Some(at("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"))),
        ("PROXY TCP6 ::ffff:1.2.3.4 ::1 0 1\r\n", Some(at("[::ffff:1.2.3.4]:0"))),
        ("PROXY UNKNOWN\r\n", None),
        (&longest_unknown, None),
    ];
    for (line, source) in cases {
        let (header, length) = parse(line.as_bytes()).expect("it is right").expect("it is whole");
        assert_eq!((header.source(), length), (source, line.len()), "{line}");
        let more = [line.as_bytes(), b"GET / HTTP/1.0\r\n\r\n"].concat();
        assert_eq!(parse(&more), Ok(Some((header, length))), "what follows is not a part of it");
    }
}

#[test]
fn wrong_lines_are_refused() {
    let wrong = [
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 4321\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 4321 443 1\r\n",
        "PROXY TCP4  192.0.2.7 198.51.100.1 4321 443\r\n",
        "PROXY TCP4 192.0.2.7 2001:db8::1 4321 443\r\n",
        "PROXY TCP6 192.0.2.7 198.51.100.1 4321 443\r\n",
        "PROXY TCP4 192.0.2.07 198.51.100.1 4321 443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 +4321 443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 04321 443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 65536 443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 4321 443\n\r\n",
        "PROXY TCP5 192.0.2.7 198.51.100.1 4321 443\r\n",
        "PROXY tcp4 192.0.2.7 198.51.100.1 4321 443\r\n",
        "PROXY UNKNOWN2\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 4321 \u{663}\r\n",
    ];
    for line in wrong {
        assert!(why(line.as_bytes()).contains("version 1"), "{line}");
    }
    let endless = [b"PROXY UNKNOWN ".to_vec(), vec![b'x'; Header::MAX_V1]].concat();
    assert_eq!(parse(&endless[..Header::MAX_V1 - 1]), Ok(None));
    assert!(why(&endless[..Header::MAX_V1]).contains("107 bytes"));
    // The end comes a byte too late.
    let late = [&endless[..Header::MAX_V1 - 1], b"\r\n"].concat();
    assert!(why(&late).contains("107 bytes"));
}

#[test]
fn what_begins_otherwise_is_refused_at_the_first_byte_that_says_so() {
    for other in ["GET / HTTP/1.1\r\n", "PROXZ", "proxy TCP4", "PROXY\r\n", "\r\n\r\r", "\0", "\r\n\r\n\0\r\nQUIT\r"] {
        let differs = (1..=other.len()).find(|count| parse(&other.as_bytes()[..*count]).is_err()).expect("it is no header");
        assert!(why(&other.as_bytes()[..differs]).contains("sent no PROXY header"), "{other:?}");
        assert_eq!(parse(&other.as_bytes()[..differs - 1]), Ok(None), "{other:?}");
    }
    assert_eq!(why(b"G").split(": ").last(), Some("it sent no PROXY header, which its address has to"));
}

#[test]
fn binary_headers_are_read() {
    let tlvs = [&V4[..], &[0x04, 0, 3, 1, 2, 3], &[0x02, 0, 1, b'x']].concat();
    let mut unix = vec![0; 216];
    unix[..9].copy_from_slice(b"/run/sock");
    let cases = [
        (v2(0x21, 0x11, &V4), four()),
        (v2(0x21, 0x11, &tlvs), four()),
        (six().bytes(Version::V2), six()),
        (v2(0x20, 0x00, &[]), Header::Local),
        (v2(0x20, 0x11, &V4), Header::Local),
        (v2(0x20, 0x77, &tlvs), Header::Local),
        (v2(0x21, 0x00, &[]), Header::Local),
        (v2(0x21, 0x00, &tlvs), Header::Local),
        (v2(0x21, 0x31, &unix), Header::Local),
        (v2(0x21, 0x11, &[&V4[..], &[0; Header::MAX_V2 - 16 - 12]].concat()), four()),
    ];
    for (bytes, header) in cases {
        assert_eq!(parse(&bytes), Ok(Some((header, bytes.len()))), "{bytes:?}");
    }
}

#[test]
fn wrong_binary_headers_are_refused() {
    for (bytes, about) in [
        (v2(0x11, 0x11, &V4), "another version"),
        (v2(0x22, 0x11, &V4), "another version"),
        (v2(0x31, 0x11, &V4), "another version"),
        (v2(0x21, 0x12, &V4), "another transport"),
        (v2(0x21, 0x22, &[0; 36]), "another transport"),
        (v2(0x21, 0x32, &[0; 216]), "another transport"),
        (v2(0x21, 0x41, &V4), "another transport"),
        (v2(0x21, 0x11, &V4[..11]), "too short"),
        (v2(0x21, 0x21, &[0; 35]), "too short"),
        (v2(0x21, 0x31, &[0; 215]), "too short"),
        (v2(0x21, 0x11, &[0; Header::MAX_V2 - 15]), "4,096 bytes"),
        (v2(0x20, 0x00, &[0; 0xFFFF]), "4,096 bytes"),
    ] {
        assert!(why(&bytes).contains(about), "{}", why(&bytes));
        assert!(parse(&bytes[..16]).is_err(), "known before the addresses came: {about}");
    }
}

#[test]
fn what_is_written_is_read() {
    let mixed = Header::proxied(at("192.0.2.7:4321"), at("[2001:db8::1]:443"));
    let mapped = Header::proxied(at("[::ffff:192.0.2.7]:4321"), at("[2001:db8::1]:443"));
    let both = Header::proxied(at("[::ffff:192.0.2.7]:4321"), at("[::ffff:198.51.100.1]:443"));
    for version in [Version::V1, Version::V2] {
        for (written, read) in [(four(), four()), (six(), six()), (mixed, mapped), (both, four()), (Header::Local, Header::Local)]
        {
            let bytes = written.bytes(version);
            assert_eq!(parse(&bytes), Ok(Some((read, bytes.len()))), "{version:?} {written:?}");
        }
    }
    assert_eq!(six().bytes(Version::V1), b"PROXY TCP6 2001:db8::7 2001:db8::1 4321 443\r\n");
    assert_eq!(Header::Local.bytes(Version::V1), b"PROXY UNKNOWN\r\n");
    assert_eq!(("v2".parse(), "v1".parse()), (Ok(Version::V2), Ok(Version::V1)));
    assert_eq!(
        "3".parse::<Version>().map_err(|error| error.to_string()),
        Err("`3` is no version of the PROXY protocol: write v1 or v2".into())
    );
}

#[test]
fn a_source_is_an_address_a_network_or_the_path() {
    for wrong in ["", "10.0.0.0/33", "::1/129", "10.0.0/8", "10.0.0.0/", "unix:", "10.0.0.1:80", "10.0.0.0/-1"] {
        let error = wrong.parse::<Source>().expect_err("it is none").to_string();
        assert!(error.starts_with(&format!("`{wrong}` is no source")), "{error}");
    }
    for text in ["10.0.0.0/8", "::1/128", "unix"] {
        assert_eq!(text.parse::<Source>().expect("it is one").to_string(), text);
    }
}

/// Names its peer, then echoes.
struct Named;
struct Name(String, Duration);

impl Service for Named {
    type Protocol = Name;
    fn open(&self, peer: &Peer) -> Name {
        Name(peer.remote().map_or("none".to_owned(), |peer| peer.to_string()), peer.handshake_time())
    }
    fn restore(&self, peer: &Peer, _from: &mut Saved<'_>) -> Result<Name, CannotRestore> {
        Ok(Service::open(self, peer))
    }
    fn state(&self) -> State {
        State::of("name", 1)
    }
    fn closing(&self) -> Closing {
        Closing::PeerIsDone
    }
}

impl Protocol for Name {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(format!("[{}]", self.0).as_bytes());
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.send(input.take_all());
        Step::Continue
    }
    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        self.opened(cx)
    }
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}

fn accepts() -> Accepts {
    Accepts::from(["10.0.0.0/8", "::1", "unix"].map(|text| text.parse().expect("a source")))
}

fn from(peer: Peer) -> Driver<Layer<Accepts, Named>> {
    Driver::open_with(Layer::new(accepts(), Named), peer, Bounds::default())
}

fn proxy() -> Peer {
    Peer::new(Some(at("10.1.2.3:555")), Side::Accepted)
}

#[test]
fn a_header_is_read_wherever_it_is_split() {
    let tlvs = v2(0x21, 0x11, &[&V4[..], &[0x04; 700]].concat());
    for header in [four().bytes(Version::V1), four().bytes(Version::V2), tlvs] {
        let all = [&header[..], b"hello"].concat();
        for split in 0..=all.len() {
            let mut connection = from(proxy());
            connection.receive(&all[..split]);
            connection.receive(&all[split..]);
            assert_eq!(connection.sent(), b"[192.0.2.7:4321]hello", "at {split}");
        }
        let mut connection = from(proxy());
        connection.receive_split(&all);
        assert_eq!((connection.sent(), connection.timer()), (b"[192.0.2.7:4321]hello".to_vec(), None));
        connection.finish();
        assert_eq!(connection.closed(), Some(Closed::Orderly));
    }
}

#[test]
fn only_sources_are_believed_and_they_must_send_a_header() {
    let unix = || Peer::new(None, Side::Accepted).with_listener("unix:/run/x".parse().expect("an address"));
    let tcp = || Peer::new(None, Side::Accepted).with_listener("127.0.0.1:1".parse().expect("an address"));
    let is_source = [
        proxy(),
        Peer::new(Some(at("[::ffff:10.9.9.9]:1")), Side::Accepted),
        Peer::new(Some(at("[::1]:1")), Side::Accepted),
        unix(),
    ];
    for peer in is_source {
        let mut believed = from(peer.clone());
        assert_eq!((believed.sent(), believed.timer()), (vec![], Some(Duration::from_secs(5))));
        believed.receive(&four().bytes(Version::V2));
        assert_eq!(believed.sent(), b"[192.0.2.7:4321]");
        let mut refused = from(peer.clone());
        refused.receive(b"GET / HTTP/1.0\r\n\r\n");
        assert_eq!((refused.closed(), refused.sent()), (Some(Closed::Aborted), vec![]));
        assert!(refused.reports()[0].contains("sent no PROXY header"), "{:?}", refused.reports());
        let mut silent = from(peer);
        silent.advance(Duration::from_secs(5));
        assert_eq!(silent.closed(), Some(Closed::Aborted));
        assert!(silent.reports()[0].contains("not complete after 5s"), "{:?}", silent.reports());
    }
    let connected = Peer::new(Some(at("10.1.2.3:555")), Side::Connected);
    for (peer, name) in [
        (Peer::new(Some(at("11.0.0.1:1")), Side::Accepted), "[11.0.0.1:1]"),
        (Peer::new(Some(at("[::2]:1")), Side::Accepted), "[[::2]:1]"),
        (connected, "[10.1.2.3:555]"),
        (tcp(), "[none]"),
    ] {
        let mut stranger = from(peer);
        assert_eq!((stranger.sent(), stranger.timer()), (name.into(), None));
        let header = four().bytes(Version::V1);
        stranger.receive(&header);
        assert_eq!(stranger.sent(), header);
    }
}

#[test]
fn a_proxys_own_connection_keeps_its_address() {
    for header in [Header::Local.bytes(Version::V1), Header::Local.bytes(Version::V2), v2(0x20, 0x11, &V4)] {
        let mut connection = from(proxy());
        connection.receive(&header);
        assert_eq!(connection.sent(), b"[10.1.2.3:555]");
    }
}

#[test]
fn half_a_header_goes_along_wherever_it_is_split() {
    let tlvs = v2(0x21, 0x11, &[&V4[..], &[0x04; 700]].concat());
    for header in [four().bytes(Version::V1), four().bytes(Version::V2), tlvs] {
        for split in 0..header.len() {
            let mut connection = from(proxy());
            connection.receive(&header[..split]);
            connection.advance(Duration::from_secs(2));
            let mut moved = connection.save_and_restore(Layer::new(accepts(), Named)).expect("it moves");
            assert_eq!(moved.timer(), Some(Duration::from_secs(3)), "the rest of the time for a header");
            assert!(moved.protocol().expect("it is open").awaits_peer());
            moved.advance(Duration::from_secs(1));
            let mut again = moved.save_and_restore(Layer::new(accepts(), Named)).expect("it moves on");
            again.advance(Duration::from_secs(1));
            again.receive(&[&header[split..], b"hello"].concat());
            assert_eq!((again.sent(), again.timer()), (b"[192.0.2.7:4321]hello".to_vec(), None), "at {split}");
            let protocol = again.protocol().expect("it is open");
            assert!(!protocol.awaits_peer());
            let crate::layer::Stage::Open(Name(_, took)) = &protocol.stage else { panic!("at {split}") };
            assert_eq!(*took, Duration::from_secs(4), "of three processes");
        }
    }
}

#[test]
fn half_a_header_is_aborted_in_time_wherever_it_is() {
    let mut connection = from(proxy());
    connection.receive(b"PROXY TCP4 1");
    connection.advance(Duration::from_secs(4));
    let mut moved = connection.save_and_restore(Layer::new(accepts(), Named)).expect("it moves");
    moved.advance(Duration::from_secs(1));
    assert_eq!(moved.closed(), Some(Closed::Aborted));
}

#[test]
fn half_a_header_goes_along_in_another_header() {
    let nested = || Layer::new(accepts(), Layer::new(Accepts::from(["192.0.2.0/24".parse().expect("a source")]), Named));
    let both =
        [four().bytes(Version::V2), Header::proxied(at("203.0.113.5:9"), at("198.51.100.1:443")).bytes(Version::V1)].concat();
    for split in 0..both.len() {
        let mut connection = Driver::open_with(nested(), proxy(), Bounds::default());
        connection.receive(&both[..split]);
        let mut moved = connection.save_and_restore(nested()).expect("it moves");
        moved.receive(&both[split..]);
        assert_eq!(moved.sent(), b"[203.0.113.5:9]", "at {split}");
    }
}

#[test]
fn the_real_address_goes_along() {
    let mut connection = from(proxy());
    connection.receive(&four().bytes(Version::V2));
    assert_eq!(connection.sent(), b"[192.0.2.7:4321]");
    let mut moved = connection.save_and_restore(Layer::new(accepts(), Named)).expect("it moves");
    moved.receive(b"again");
    assert_eq!(moved.sent(), b"[192.0.2.7:4321]again");
}

#[test]
fn a_layer_of_headers_is_as_its_service_and_is_built_from_its_recipe() {
    let layer = Layer::new(accepts().within(Duration::from_millis(1500)), Named);
    assert_eq!((layer.closing(), layer.state().to_string()), (Closing::PeerIsDone, "name 1 in proxy-header 2".into()));
    assert!(
        layer.learns_peer_address()
            && layer.needs_peer_address()
            && !Layer::new(Sends::new(Version::V2), Named).learns_peer_address()
    );
    let accepts = accepts().within(Duration::from_millis(1500));
    let recipe = accepts.recipe().expect("it has one");
    assert_eq!(Accepts::from_options(&recipe.options), Ok(accepts));
    assert!(Accepts::from_options(b"else").is_err());
}

#[test]
fn a_header_is_sent_first_and_only_where_this_side_connects() {
    let target = || Peer::new(Some(at("198.51.100.1:443")), Side::Connected);
    let source = at("192.0.2.7:4321");
    let cases = [
        (Sends::new(Version::V1), target(), b"PROXY UNKNOWN\r\n".to_vec()),
        (Sends::new(Version::V2), target(), v2(0x20, 0x00, &[])),
        (Sends::new(Version::V2).on_behalf_of(move |_| Some(source)), target(), v2(0x21, 0x11, &V4)),
        (
            Sends::new(Version::V1).on_behalf_of(move |_| Some(source)),
            Peer::new(None, Side::Connected),
            b"PROXY TCP4 192.0.2.7 0.0.0.0 4321 0\r\n".to_vec(),
        ),
        (Sends::new(Version::V2).on_behalf_of(move |_| Some(source)), proxy(), vec![]),
    ];
    for (sends, peer, header) in cases {
        let name = peer.remote().map_or("[none]".to_owned(), |remote| format!("[{remote}]"));
        let mut connection = Driver::open_with(Layer::new(sends, Named), peer, Bounds::default());
        assert_eq!(connection.sent(), [&header[..], name.as_bytes()].concat());
        connection.receive(b"PROXY UNKNOWN\r\n");
        assert_eq!(connection.sent(), b"PROXY UNKNOWN\r\n");
    }
}
