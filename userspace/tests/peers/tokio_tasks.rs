//! A server whose tasks wait for different things, as goroutines.go, on tokio with two workers: it says its port, and serves until
//! its standard input ends.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, Mutex};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n";

type Work = mpsc::Sender<oneshot::Sender<()>>;

async fn serve(stream: TcpStream, lock: Arc<Mutex<()>>, work: Work) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut first = String::new();
    while stream.read_line(&mut first).await? > 0 {
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).await?;
        }
        if first.contains("/sleep") {
            // In a task of its own, whose end it waits for.
            let sleeps = tokio::spawn(tokio::time::sleep(Duration::from_millis(3)));
            sleeps.await.expect("it does not panic");
        } else if first.contains("/lock") {
            let _held = lock.lock().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        } else {
            let (reply, replied) = oneshot::channel();
            work.send(reply).await.expect("the worker is there");
            replied.await.expect("it replies");
        }
        stream.write_all(ANSWER).await?;
        first.clear();
    }
    Ok(())
}

#[tokio::main(worker_threads = 2)]
async fn main() -> std::io::Result<()> {
    let (work, mut handed) = mpsc::channel::<oneshot::Sender<()>>(64);
    // Does what handlers hand it.
    tokio::spawn(async move {
        while let Some(reply) = handed.recv().await {
            let end = Instant::now() + Duration::from_millis(1);
            while Instant::now() < end {}
            let _ = reply.send(());
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    let lock = Arc::new(Mutex::new(()));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, lock.clone(), work.clone()));
        }
    });
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    std::process::exit(0);
}
