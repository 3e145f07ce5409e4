//! A server with tenants: a key-value store that charges every byte to a tenant. A connection says `TENANT name`, then
//! `SET key value`, `GET key`, `USED` or `LIMIT bytes`. The tenant's map, keys and values are charged to the tenant.
//! Beyond the tenant's limit `SET` answers `ERR`, and the other tenants continue.
//!
//! `cargo run --example tenants -- PORT` serves; without an argument the program serves two clients of its own, and
//! ends.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use kmem::{account_malloc, Group};

#[global_allocator]
static ALLOCATOR: kmem::Kmem = kmem::Kmem;

struct Tenant {
    group: Group,
    rows: Mutex<HashMap<String, String>>,
}

type Tenants = Mutex<HashMap<String, Arc<Tenant>>>;

/// Text charged to the active group, or None beyond the group's limit: no call here ends the process.
fn copied(text: &str) -> Option<String> {
    let mut copy = String::new();

    copy.try_reserve_exact(text.len()).ok()?;
    copy.push_str(text);
    Some(copy)
}

impl Tenant {
    fn set(&self, key: &str, value: &str) -> Option<()> {
        self.group.run(|| {
            let mut rows = self.rows.lock().unwrap();

            rows.try_reserve(1).ok()?;
            rows.insert(copied(key)?, copied(value)?);
            Some(())
        })
    }

    /// The answer to a line of a client. The answer is the server's memory, not the tenant's.
    fn answer(&self, line: &str) -> String {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));

        match (verb, rest.split_once(' ')) {
            ("SET", Some((key, value))) => match self.set(key, value) {
                Some(()) => "OK".to_string(),
                None => format!("ERR beyond the limit of {}", self.group.name()),
            },
            ("GET", None) => match self.rows.lock().unwrap().get(rest) {
                Some(value) => format!("VALUE {}", value),
                None => "NONE".to_string(),
            },
            ("LIMIT", None) => match rest.parse().ok().and_then(|max| self.group.set_max(max).ok()) {
                Some(()) => "OK".to_string(),
                None => "ERR no number".to_string(),
            },
            ("USED", None) => {
                self.group.drain();
                format!("VALUE {}", self.group.current())
            }
            _ => "ERR no such command".to_string(),
        }
    }
}

fn find(tenants: &Tenants, name: &str) -> Arc<Tenant> {
    let mut all = tenants.lock().unwrap();

    all.entry(name.to_string())
        .or_insert_with(|| {
            Arc::new(Tenant {
                group: Group::new(name).expect("a group"),
                rows: Mutex::default(),
            })
        })
        .clone()
}

fn serve(stream: TcpStream, tenants: &Tenants) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let mut out = io::BufWriter::new(stream);
    let first = lines.next().transpose()?.unwrap_or_default();
    let tenant = match first.strip_prefix("TENANT ") {
        Some(name) => find(tenants, name),
        None => return writeln!(out, "ERR whose?"),
    };

    writeln!(out, "OK")?;
    out.flush()?;
    for line in lines {
        writeln!(out, "{}", tenant.answer(&line?))?;
        out.flush()?;
    }
    Ok(())
}

fn listen(listener: TcpListener) {
    let tenants: &'static Tenants = Box::leak(Box::default());

    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            if let Err(error) = serve(stream, tenants) {
                eprintln!("a client left: {}", error);
            }
        });
    }
}

struct Client {
    lines: io::Lines<BufReader<TcpStream>>,
    stream: TcpStream,
}

impl Client {
    fn new(address: std::net::SocketAddr, tenant: &str) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut client = Client { lines: BufReader::new(stream.try_clone()?).lines(), stream };

        client.ask(&format!("TENANT {}", tenant))?;
        Ok(client)
    }

    fn ask(&mut self, line: &str) -> io::Result<String> {
        self.stream.write_all(format!("{}\n", line).as_bytes())?;
        self.lines.next().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Number of stored rows of `count`, and the last answer.
    fn fill(&mut self, count: usize) -> io::Result<(usize, String)> {
        for i in 0..count {
            let answer = self.ask(&format!("SET k{} {}{}", i, i, ".".repeat(100)))?;

            if answer != "OK" {
                return Ok((i, answer));
            }
        }
        Ok((count, "OK".to_string()))
    }
}

const ROWS: usize = 20_000;

fn demonstrate() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || listen(listener));

    let (mut alice, mut bob) = (Client::new(address, "alice")?, Client::new(address, "bob")?);
    println!("alice> LIMIT 1000000: {}", alice.ask("LIMIT 1000000")?);
    let (stored, last) = alice.fill(ROWS)?;
    println!("alice> SET {} rows: {} stored, then {}", ROWS, stored, last);
    let (all, last) = bob.fill(ROWS)?;
    println!("bob>   SET {} rows: {} stored, {}", ROWS, all, last);
    println!("alice> USED: {}", alice.ask("USED")?);
    println!("bob>   USED: {}", bob.ask("USED")?);
    println!("alice> GET k7: {:.12}...", alice.ask("GET k7")?);
    if stored == 0 || stored == ROWS || all != ROWS {
        return Err(io::Error::new(io::ErrorKind::Other, "a limit did not hold, or held too much"));
    }
    Ok(())
}

fn main() -> io::Result<()> {
    account_malloc(true)?;
    match std::env::args().nth(1) {
        Some(port) => listen(TcpListener::bind(format!("127.0.0.1:{}", port))?),
        None => demonstrate()?,
    }
    Ok(())
}
