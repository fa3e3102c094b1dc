//! Like front.py, on tokio with two workers: front proxy|calls PORT BEHIND. Both sides use hyper.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpSocket;

/// What a front end needs to answer; cheap to clone.
#[derive(Clone)]
struct Front {
    is_proxy: bool,
    behind: String,
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl Front {
    async fn ask(&self, path: &str) -> Bytes {
        let uri: Uri = format!("http://{}{path}", self.behind).parse().expect("a URI");
        let answer = self.client.get(uri).await.expect("an answer");
        answer.into_body().collect().await.expect("a body").to_bytes()
    }

    async fn calls(&self, path: &str) {
        let parts: Vec<&str> = path.split('/').collect();
        let mut child = 0;
        let mut next = || {
            child += 1;
            format!("/b/{}/{}", parts[2], child - 1)
        };
        for step in parts[3].split(',') {
            match step.split_at(1) {
                ("s", ms) => {
                    let ms = ms.parse().expect("a number");
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                }
                ("c", _) => drop(self.ask(&next()).await),
                _ => {
                    let (first, second) = (next(), next());
                    futures_util::future::join(self.ask(&first), self.ask(&second)).await;
                }
            }
        }
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let path = request.uri().path();
        if self.is_proxy {
            return Ok(Response::new(Full::new(self.ask(path).await)));
        }
        self.calls(path).await;
        Ok(Response::new(Full::new(Bytes::from_static(b"ok"))))
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let front = Front {
        is_proxy: words[1] == "proxy",
        behind: format!("127.0.0.1:{}", words[3]),
        client: Client::builder(TokioExecutor::new()).build_http(),
    };
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], words[2].parse().expect("a port")).into())?;
    let listener = socket.listen(1024)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let front = front.clone();
        let service = service_fn(move |request| front.clone().answer(request));
        tokio::spawn(async move {
            let served = hyper::server::conn::http1::Builder::new();
            // A connection that the client breaks off is not an error here.
            let _ = served.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
