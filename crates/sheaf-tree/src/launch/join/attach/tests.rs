use super::*;
use crate::link::{Ancestor, DoorAddress, Secret};

fn invitation(rank: u32, here: IpAddr) -> Invitation {
    Invitation {
        secret: Secret::random().unwrap(),
        rank,
        host: rank.to_string(),
        ancestors: vec![Ancestor { rank: 0, address: DoorAddress::Tcp(vec![(here, 9).into()]) }],
        credentials: None,
        leaf: None,
        over: crate::launch::invitation::Over::Door,
    }
}

struct Fixture {
    address: String,
    tokens: Arc<Tokens>,
    audit: Arc<Audit>,
    _enrolment: Arc<Enrolment>,
}

impl Fixture {
    /// Waits until these are counted: whoever goes away is counted a little later.
    #[track_caller]
    fn refuses(&self, expected: &[(Refusal, u64)]) {
        let deadline = Instant::now() + ENROL_TIMEOUT;
        while self.audit.counts().refused != expected {
            assert!(Instant::now() < deadline, "{:?}", self.audit.counts());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// An enrolment for hosts whose names are numbers.
fn fixture() -> Fixture {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let authority = Authority::new().unwrap();
    let tokens = Arc::new(Tokens::new(&authority));
    let admit = |host: &str, here| match host.parse() {
        Ok(rank) => Ok(vec![invitation(rank, here)]),
        Err(_) if host == "early" => Err(No::NotYet("it is there".to_owned(), ENROL_TIMEOUT)),
        Err(_) => Err(No::Never(Refusal::ForeignHost, format!("{host} is not one of its hosts"))),
    };
    let audit = Arc::new(Audit::default());
    let (counts, desk) = (Arc::clone(&audit), Arc::clone(&tokens));
    let enrolment = Enrolment::start(listener, &authority, desk, counts, Box::new(admit)).unwrap();
    Fixture { address, tokens, audit, _enrolment: enrolment }
}

#[test]
fn token_is_used_as_often_as_was_said() {
    let fixture = fixture();
    let token = fixture.tokens.issue(2).unwrap();
    for rank in [7, 8] {
        assert_eq!(enrol(&fixture.address, &token, &rank.to_string()).unwrap()[0].rank, rank);
    }
    let again = enrol(&fixture.address, &token, "9").unwrap_err();
    let told = "the session refuses this host: its token has been used already";
    assert_eq!(again.to_string(), told);
    assert_eq!(fixture.audit.counts().refused, [(Refusal::UsedToken, 1)]);
}

#[test]
fn refused_host_uses_no_token_up() {
    let fixture = fixture();
    let token = fixture.tokens.issue(1).unwrap();
    let refused = enrol(&fixture.address, &token, "x").unwrap_err().to_string();
    assert_eq!(refused, "the session refuses this host: x is not one of its hosts");
    let early = enrol(&fixture.address, &token, "early").unwrap_err();
    assert!(matches!(early, EnrolError::NotYet { patience: ENROL_TIMEOUT, .. }), "{early:?}");
    assert_eq!(enrol(&fixture.address, &token, "3").unwrap()[0].rank, 3);
}

#[test]
fn enrolment_at_a_closed_port_reports_no_listener() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let token = fixture().tokens.issue(1).unwrap();
    assert!(matches!(enrol(&closed, &token, "1"), Err(EnrolError::Nobody(at)) if at == closed));
}

#[test]
fn token_of_another_session_trusts_nobody_here() {
    let (one, other) = (fixture(), fixture());
    let token = other.tokens.issue(1).unwrap();
    assert!(matches!(enrol(&one.address, &token, "1"), Err(EnrolError::Stranger(_))));
    // The right fingerprint with a wrong secret is heard, and refused.
    one.refuses(&[(Refusal::NoToken, 1)]);
    let right = one.tokens.issue(1).unwrap();
    let forged = Token { authority: right.authority.clone(), secret: token.secret };
    assert!(matches!(enrol(&one.address, &forged, "1"), Err(EnrolError::Refused(_))));
    one.refuses(&[(Refusal::NoToken, 1), (Refusal::ForeignToken, 1)]);
    assert_eq!(enrol(&one.address, &right, "1").unwrap()[0].rank, 1);
}

#[test]
fn strangers_get_nothing_and_change_nothing() {
    let fixture = fixture();
    let token = fixture.tokens.issue(1).unwrap();
    // One that never says anything is there all the time.
    let silent = TcpStream::connect(&fixture.address).unwrap();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[0x16, 3, 1, 0xff, 0xff]] {
        let mut stream = TcpStream::connect(&fixture.address).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        // At most a TLS alert.
        assert!(answer.len() <= 7, "{answer:?}");
    }
    assert_eq!(enrol(&fixture.address, &token, "1").unwrap()[0].rank, 1);
    drop(silent);
}

#[test]
fn many_join_at_once() {
    let fixture = fixture();
    let token = fixture.tokens.issue(64).unwrap();
    let join = |rank: u32| {
        let (address, token) = (fixture.address.clone(), token.clone());
        std::thread::spawn(move || enrol(&address, &token, &rank.to_string()).unwrap()[0].rank)
    };
    let joining: Vec<_> = (0..64).map(join).collect();
    let ranks: Vec<u32> = joining.into_iter().map(|one| one.join().unwrap()).collect();
    assert_eq!(ranks, (0..64).collect::<Vec<_>>());
}

#[test]
fn tokens_are_text_and_hide_their_secret_in_messages() {
    let tokens = Tokens::new(&Authority::new().unwrap());
    let token = tokens.issue(1).unwrap();
    let text = token.to_string();
    assert_eq!(format!(" {text}\n").parse::<Token>().unwrap(), token);
    let secret = text.rsplit('.').next().unwrap();
    assert!(!format!("{token:?} {tokens:?}").contains(secret));
    for wrong in
        ["", "sheaf1.", "sheaf1.ab.cd", &text[..text.len() - 1], &text.replace("sheaf1", "sheaf2")]
    {
        assert!(matches!(wrong.parse::<Token>(), Err(EnrolError::Token)), "{wrong}");
    }
}
