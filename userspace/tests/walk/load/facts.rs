//! What really happened to the requests of a simulated machine under load: when each byte was written, reached its
//! reader's socket and was read, and which requests each thread worked for at each time. Never derived from events.

use crate::walk::truth::TaskNo;

pub type ReqNo = usize;
/// One direction of a connection: 2 x the connection, + 1 for answers.
pub type LinkNo = usize;

/// When the bytes before `end` had reached a stage, in order.
#[derive(Clone, Debug, Default)]
pub struct Moves(Vec<(u64, u64)>);

impl Moves {
    pub fn note(&mut self, end: u64, at_ns: u64) {
        if self.0.last().is_none_or(|(known, _)| *known < end) {
            self.0.push((end, at_ns));
        }
    }

    /// When this byte reached the stage.
    pub fn of(&self, byte: u64) -> Option<u64> {
        self.0.iter().find(|(end, _)| byte < *end).map(|(_, at_ns)| *at_ns)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Link {
    /// Accepted by the kernel from the writer; in the reader's socket; read by the reader.
    pub put: Moves,
    pub there: Moves,
    pub taken: Moves,
    /// Bytes arrived before the connection was accepted, and the kernel side does not report them.
    pub untold: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Opened {
    pub established_ns: Option<u64>,
    /// When the accept() that returned it ended.
    pub accepted_ns: Option<u64>,
}

/// A packet on its way through devices: bytes `[from, end)`.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub link: LinkNo,
    pub from: u64,
    pub end: u64,
    pub queued_ns: u64,
    pub sent_ns: Option<u64>,
    pub received_ns: Option<u64>,
}

/// Bytes `[from, to)` of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Message {
    pub link: LinkNo,
    pub from: u64,
    pub to: u64,
}

/// A request the simulation performed.
#[derive(Clone, Debug)]
pub struct Req {
    pub conn: usize,
    /// The request it was made for.
    pub parent: Option<ReqNo>,
    pub asked: Message,
    pub answer: Message,
    /// Whether its connection is opened and closed for it alone.
    pub alone: bool,
    pub client: TaskNo,
    /// Process of the thread that read it last.
    pub server_tgid: u32,
    /// From the client's first call for it to the end of its last.
    pub start_ns: Option<u64>,
    pub end_ns: Option<u64>,
    /// When the server had read all of it, and when the server's last call that wrote the answer ended.
    pub received_ns: Option<u64>,
    pub answered_ns: Option<u64>,
}

/// A request was put off at `from_ns` until `due_ns`, and its server went on with it at `resumed_ns`.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    pub req: ReqNo,
    pub from_ns: u64,
    pub due_ns: u64,
    pub resumed_ns: Option<u64>,
}

/// The requests that a thread works for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Whose {
    pub of: Vec<ReqNo>,
    /// For one of them or for all of them: for example, the thread looks which requests are there.
    pub loose: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub links: Vec<Link>,
    pub opened: Vec<Opened>,
    pub packets: Vec<Packet>,
    pub reqs: Vec<Req>,
    pub delays: Vec<Delay>,
    /// Number 0 stands for no request.
    pub whose: Vec<Whose>,
}

impl Facts {
    /// The number that stands for these requests.
    pub fn number_of(&mut self, of: &[ReqNo], loose: bool) -> u32 {
        if self.whose.is_empty() {
            self.whose.push(Whose::default());
        }
        let whose = Whose { of: of.to_vec(), loose: loose && !of.is_empty() };
        let known = self.whose.iter().position(|known| *known == whose);
        let number = known.unwrap_or_else(|| {
            self.whose.push(whose);
            self.whose.len() - 1
        });
        number as u32
    }

    /// Whether a request is `ancestor` or was made for it.
    pub fn is_for(&self, req: ReqNo, ancestor: ReqNo) -> bool {
        req == ancestor || self.reqs[req].parent.is_some_and(|parent| self.is_for(parent, ancestor))
    }

    /// The messages of all other requests.
    pub fn others(&self, req: ReqNo) -> impl Iterator<Item = Message> + '_ {
        let others = (0..self.reqs.len()).filter(move |other| !self.is_for(*other, req));
        others.flat_map(|other| [self.reqs[other].asked, self.reqs[other].answer])
    }

    /// The messages of a request and of the requests made for it.
    pub fn messages(&self, req: ReqNo) -> impl Iterator<Item = Message> + '_ {
        self.family(req).flat_map(|other| [self.reqs[other].asked, self.reqs[other].answer])
    }

    /// The request and the requests made for it.
    pub fn family(&self, req: ReqNo) -> impl Iterator<Item = ReqNo> + '_ {
        (0..self.reqs.len()).filter(move |other| self.is_for(*other, req))
    }
}
