//! A proxy before a server that lets a test decide what goes wrong on the way.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(30);

/// What comes of one request.
#[derive(Clone, Debug)]
pub enum Fate {
    /// It is answered as the server answers it.
    Pass,
    /// It is answered so late.
    Late(Duration),
    /// It is not passed on, and answered with this.
    Answer { status: u16, headers: &'static str, body: &'static str },
    /// Half of it is read, and the connection is ended.
    CutRequest,
    /// The server has done it, and of its answer's body so many bytes come, at most.
    CutAnswer(usize),
    /// The server has done it, and this is what is said of it.
    Done { status: u16, body: &'static str },
}

/// A request that is decided on.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// Its path and query.
    pub target: String,
    pub body: Vec<u8>,
    pub at: Instant,
    /// What was sent before it.
    head: String,
    /// Which one of this method and target it is, of which the first is 0.
    pub number: usize,
}

impl Request {
    /// Whether it is of this method, and its target has this in it.
    pub fn is(&self, method: &str, part: &str) -> bool {
        self.method == method && self.target.contains(part)
    }

    /// The value of one of its headers.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

type Decide = dyn Fn(&Request) -> Fate + Send + Sync;

/// A proxy; it ends when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    decide: Box<Decide>,
    seen: Mutex<Vec<Request>>,
    ended: AtomicBool,
    busy: AtomicUsize,
    busy_max: AtomicUsize,
}

impl Proxy {
    pub fn start(
        upstream: SocketAddr,
        decide: impl Fn(&Request) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            upstream,
            decide: Box::new(decide),
            seen: Mutex::default(),
            ended: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            busy_max: AtomicUsize::new(0),
        });
        let of = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if of.ended.load(Ordering::Relaxed) {
                    return;
                }
                let (of, client) = (of.clone(), client.unwrap());
                // A connection that breaks off is what is tested.
                std::thread::spawn(move || drop(of.connection(client)));
            }
        });
        Self { address, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests until now.
    pub fn seen(&self) -> Vec<Request> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// How many of them are of a method, and have this in their targets.
    pub fn count(&self, method: &str, part: &str) -> usize {
        self.seen().iter().filter(|request| request.is(method, part)).count()
    }

    /// How many long ones were under way at once.
    pub fn busy_max(&self) -> usize {
        self.shared.busy_max.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // It waits for one more.
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn connection(&self, client: TcpStream) -> std::io::Result<()> {
        client.set_read_timeout(Some(TIMEOUT))?;
        client.set_nodelay(true)?;
        let (mut from, mut to) = (BufReader::new(client.try_clone()?), client);
        let mut server: Option<BufReader<TcpStream>> = None;
        loop {
            let Some(head) = read_head(&mut from)? else { return Ok(()) };
            let bytes = header(&head, "content-length").map_or(0, |text| text.parse().unwrap());
            let request = self.request(head);
            let fate = (self.decide)(&request);
            if matches!(fate, Fate::CutRequest) {
                let mut half = vec![0; bytes / 2];
                from.read_exact(&mut half)?;
                return to.shutdown(Shutdown::Both);
            }
            let mut body = vec![0; bytes];
            from.read_exact(&mut body)?;
            let request = Request { body, ..request };
            if let Fate::Answer { status, headers, body } = fate {
                answer(&mut to, status, headers, body, request.method == "HEAD")?;
                continue;
            }
            let long = (request.body.len() > 1 << 20).then(|| LongRequest::new(self));
            if !self.pass((&request, long), &fate, &mut server, &mut to)? {
                return to.shutdown(Shutdown::Both);
            }
        }
    }

    fn request(&self, head: String) -> Request {
        let mut words = head.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let mut seen = self.seen.lock().unwrap();
        let is_same = |old: &&Request| old.method == method && old.target == target;
        let number = seen.iter().filter(is_same).count();
        let (body, at) = (Vec::new(), Instant::now());
        let request = Request { method, target, body, at, head, number };
        seen.push(request.clone());
        request
    }

    /// Passes a request on, and its answer back; whether the connection goes on.
    fn pass(
        &self,
        (request, long): (&Request, Option<LongRequest<'_>>),
        fate: &Fate,
        server: &mut Option<BufReader<TcpStream>>,
        to: &mut TcpStream,
    ) -> std::io::Result<bool> {
        if server.is_none() {
            let stream = TcpStream::connect(self.upstream)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_nodelay(true)?;
            *server = Some(BufReader::new(stream));
        }
        let upstream = server.as_mut().unwrap();
        upstream.get_mut().write_all(request.head.as_bytes())?;
        upstream.get_mut().write_all(&request.body)?;
        let Some(head) = read_head(upstream)? else { return Ok(false) };
        let body = read_body(&head, request.method == "HEAD", upstream)?;
        let ends = header(&head, "connection").is_some_and(|value| value == "close");
        if ends {
            *server = None;
        }
        if let Fate::Late(time) = fate {
            std::thread::sleep(*time);
        }
        // Who has the answer may send the next one at once.
        drop(long);
        match fate {
            Fate::CutAnswer(bytes) => {
                if *bytes > 0 {
                    to.write_all(head.as_bytes())?;
                    to.write_all(&body[..body.len().min(*bytes)])?;
                }
                return Ok(false);
            }
            Fate::Done { status, body } => {
                answer(to, *status, "", body, request.method == "HEAD")?;
                return Ok(true);
            }
            _ => {}
        }
        to.write_all(head.as_bytes())?;
        to.write_all(&body)?;
        Ok(!ends)
    }
}

/// A long request that is under way.
struct LongRequest<'a>(&'a AtomicUsize);

impl<'a> LongRequest<'a> {
    fn new(shared: &'a Shared) -> Self {
        let busy = shared.busy.fetch_add(1, Ordering::Relaxed) + 1;
        shared.busy_max.fetch_max(busy, Ordering::Relaxed);
        Self(&shared.busy)
    }
}

impl Drop for LongRequest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(
    to: &mut TcpStream,
    status: u16,
    headers: &str,
    body: &str,
    is_head: bool,
) -> std::io::Result<()> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} So\r\ncontent-length: {length}\r\n{headers}\r\n");
    to.write_all(head.as_bytes())?;
    if is_head { Ok(()) } else { to.write_all(body.as_bytes()) }
}

/// A request's or answer's lines up to the empty one; nothing at the end.
fn read_head(from: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if from.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(head))
}

/// An answer's body, as it comes.
fn read_body(head: &str, is_head: bool, from: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
    if is_head || status == 204 || status == 304 {
        return Ok(Vec::new());
    }
    let mut body = Vec::new();
    if let Some(length) = header(head, "content-length") {
        body.resize(length.parse().unwrap(), 0);
        from.read_exact(&mut body)?;
        return Ok(body);
    }
    // In pieces, the last of which is empty.
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let bytes = usize::from_str_radix(line.trim(), 16).unwrap();
        body.extend_from_slice(line.as_bytes());
        let mut piece = vec![0; bytes + 2];
        from.read_exact(&mut piece)?;
        body.extend_from_slice(&piece);
        if bytes == 0 {
            return Ok(body);
        }
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut fields = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    fields.next().map(|(_, value)| value.trim())
}
