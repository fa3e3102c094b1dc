//! A front end with a task per connection that asks the back end on few connections, which a semaphore guards (as in
//! deadpool and sqlx). Notes how long each request waited for one: its path and nanoseconds. Arguments: its port, the
//! back end's, number of connections, file.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

struct Front {
    free: Semaphore,
    pool: Mutex<Vec<TcpStream>>,
    notes: Mutex<File>,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, behind, size, file] = &arguments[..] else { panic!("four arguments") };
    let number = |text: &str| text.parse::<u16>().expect("a number");
    let mut pool = Vec::new();
    for _ in 0..number(size) {
        pool.push(TcpStream::connect(("127.0.0.1", number(behind))).await?);
    }
    let front = Arc::new(Front {
        free: Semaphore::new(pool.len()),
        pool: Mutex::new(pool),
        notes: Mutex::new(File::create(file)?),
    });
    let listener = TcpListener::bind(("127.0.0.1", number(port))).await?;
    loop {
        let (client, _) = listener.accept().await?;
        let front = Arc::clone(&front);
        tokio::spawn(async move {
            // A client that goes away ends its task.
            let _ = serve(client, &front).await;
        });
    }
}

async fn serve(mut client: TcpStream, front: &Front) -> io::Result<()> {
    let mut buffer = vec![0; 4096];
    loop {
        let mut length = 0;
        while !buffer[..length].ends_with(b"\r\n\r\n") {
            length += match client.read(&mut buffer[length..]).await? {
                0 => return Ok(()),
                read => read,
            };
        }
        let head = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let path = head.split(' ').nth(1).unwrap_or("/").to_string();
        let begun = Instant::now();
        let permit = front.free.acquire().await.expect("it is never closed");
        let waited = begun.elapsed();
        let mut connection = front.pool.lock().expect("no panic").pop().expect("one is free");
        connection.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await?;
        // Node sends an answer of two bytes with its length.
        let mut length = 0;
        while !buffer[..length].ends_with(b"\r\n\r\nok") {
            length += match connection.read(&mut buffer[length..]).await? {
                0 => return Ok(()),
                read => read,
            };
        }
        front.pool.lock().expect("no panic").push(connection);
        drop(permit);
        writeln!(front.notes.lock().expect("no panic"), "{path} {}", waited.as_nanos())?;
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await?;
    }
}
