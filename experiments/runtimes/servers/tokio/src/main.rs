//! Like steps.py, on tokio with two workers: server PORT LOG BACKEND. There is no garbage collector.

use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

static NOTES: Mutex<String> = Mutex::new(String::new());
static LOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
static KEPT: Mutex<Vec<BufReader<TcpStream>>> = Mutex::new(Vec::new());
static BACKEND: OnceLock<String> = OnceLock::new();
static HANDED: OnceLock<mpsc::Sender<HandOver>> = OnceLock::new();

struct HandOver {
    number: String,
    amount: u64,
    begin_ns: i64,
    done: oneshot::Sender<()>,
}

fn monotonic_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec that the call fills in.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn note(number: &str, what: &str, amount: u64, begin_ns: i64) -> i64 {
    let now_ns = monotonic_ns();
    let line = format!("{number},{what},{amount},{begin_ns},{now_ns}\n");
    NOTES.lock().expect("notes").push_str(&line);
    now_ns
}

fn burn(ms: u64) {
    let end_ns = monotonic_ns() + ms as i64 * 1_000_000;
    while monotonic_ns() < end_ns {}
}

/// Does the requests' jobs one after the other.
async fn work(mut handed: mpsc::Receiver<HandOver>) {
    while let Some(HandOver { number, amount, begin_ns, done }) = handed.recv().await {
        let begin_ns = note(&number, "handwait", 0, begin_ns);
        burn(amount);
        note(&number, "hand", amount, begin_ns);
        let _ = done.send(());
    }
}

async fn hand(number: &str, amount: u64, begin_ns: i64) {
    let (done, is_done) = oneshot::channel();
    let one = HandOver { number: number.to_string(), amount, begin_ns, done };
    let handed = HANDED.get().expect("a worker");
    handed.send(one).await.expect("a worker");
    is_done.await.expect("it is done");
}

/// Returns the request line of a head; reads the rest of the head, too.
async fn head(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<String>> {
    let mut first = String::new();
    if stream.read_line(&mut first).await? == 0 {
        return Ok(None);
    }
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).await?;
    }
    Ok(Some(first))
}

async fn call(number: &str, ms: u64) -> std::io::Result<()> {
    let kept = KEPT.lock().expect("connections").pop();
    let mut stream = match kept {
        Some(stream) => stream,
        None => {
            let backend = BACKEND.get().expect("a back end");
            BufReader::new(TcpStream::connect(backend).await?)
        }
    };
    let question = format!("GET /b/{number}/{ms} HTTP/1.1\r\nHost: b\r\n\r\n");
    stream.write_all(question.as_bytes()).await?;
    head(&mut stream).await?;
    let mut answer = [0; 2];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut answer).await?;
    KEPT.lock().expect("connections").push(stream);
    Ok(())
}

async fn carry_out(number: &str, steps: &str) -> std::io::Result<()> {
    for step in steps.split(',') {
        let (step, amount) = step.split_once('=').expect("STEP=N");
        let amount: u64 = amount.parse().expect("a number");
        let mut begin_ns = monotonic_ns();
        match step {
            "burn" => burn(amount),
            "sleep" => tokio::time::sleep(Duration::from_millis(amount)).await,
            "call" => call(number, amount).await?,
            "hand" => {
                hand(number, amount, begin_ns).await;
                continue;
            }
            _ => {
                let held = LOCK.lock().await;
                begin_ns = note(number, "lockwait", 0, begin_ns);
                tokio::time::sleep(Duration::from_millis(amount)).await;
                drop(held);
            }
        }
        note(number, step, amount, begin_ns);
    }
    Ok(())
}

async fn serve(stream: TcpStream) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(line) = head(&mut stream).await? {
        let mut words = line.split(' ').nth(1).unwrap_or("").splitn(4, '/').skip(2);
        let (number, steps) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        carry_out(number, steps).await?;
        stream.write_all(ANSWER).await?;
    }
    Ok(())
}

#[tokio::main(worker_threads = 2)]
async fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    BACKEND.get_or_init(|| format!("127.0.0.1:{}", words[3]));
    let log = words[2].clone();
    let kind = tokio::signal::unix::SignalKind::terminate();
    let mut ended = tokio::signal::unix::signal(kind)?;
    tokio::spawn(async move {
        ended.recv().await;
        let notes = NOTES.lock().expect("notes");
        std::fs::write(log, notes.as_bytes()).expect("the notes can be written");
        std::process::exit(0);
    });
    let (sender, handed) = mpsc::channel(256);
    HANDED.get_or_init(|| sender);
    tokio::spawn(work(handed));
    let listener = TcpListener::bind(format!("127.0.0.1:{}", words[1])).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve(stream));
    }
}
