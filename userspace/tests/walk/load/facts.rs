//! What really happened to the requests of a simulated machine under load: when each byte was written, came to
//! its reader's socket and was read, and for which requests each thread worked when. Never derived from events.

use crate::walk::truth::TaskNo;

pub type ReqNo = usize;
/// One direction of a connection: 2 x the connection, + 1 for answers.
pub type LinkNo = usize;

/// When bytes before `end` had got somewhere, in order.
#[derive(Clone, Debug, Default)]
pub struct Moves(Vec<(u64, u64)>);

impl Moves {
    pub fn note(&mut self, end: u64, at_ns: u64) {
        if self.0.last().is_none_or(|(known, _)| *known < end) {
            self.0.push((end, at_ns));
        }
    }

    /// When that byte got there.
    pub fn of(&self, byte: u64) -> Option<u64> {
        self.0.iter().find(|(end, _)| byte < *end).map(|(_, at_ns)| *at_ns)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Link {
    /// Taken over by the kernel from who wrote them; in the reader's socket; handed to the reader.
    pub put: Moves,
    pub there: Moves,
    pub taken: Moves,
    /// Bytes came before the connection was accepted, of which the kernel side does not tell.
    pub untold: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Opened {
    pub established_ns: Option<u64>,
    /// When the accept() that took it ended.
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
    /// Its connection is opened and closed for it alone.
    pub alone: bool,
    pub client: TaskNo,
    /// Process of the thread that read it last.
    pub server_tgid: u32,
    /// From the client's first call for it to the end of its last.
    pub start_ns: Option<u64>,
    pub end_ns: Option<u64>,
    /// When the server had it whole, and when its last call that wrote the answer ended.
    pub received_ns: Option<u64>,
    pub answered_ns: Option<u64>,
}

/// A request was put off: from then until then, and its server went on with it at last.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    pub req: ReqNo,
    pub from_ns: u64,
    pub due_ns: u64,
    pub resumed_ns: Option<u64>,
}

/// For which requests a thread works.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Whose {
    pub of: Vec<ReqNo>,
    /// For one of them or for all: it goes to see which are there, say.
    pub loose: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub links: Vec<Link>,
    pub opened: Vec<Opened>,
    pub packets: Vec<Packet>,
    pub reqs: Vec<Req>,
    pub delays: Vec<Delay>,
    /// 0: no request's.
    pub whose: Vec<Whose>,
}

impl Facts {
    /// The number of those.
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

    /// Whether a request was made for another, or is it.
    pub fn is_for(&self, req: ReqNo, ancestor: ReqNo) -> bool {
        req == ancestor || self.reqs[req].parent.is_some_and(|parent| self.is_for(parent, ancestor))
    }

    /// The messages of all others.
    pub fn others(&self, req: ReqNo) -> impl Iterator<Item = Message> + '_ {
        let others = (0..self.reqs.len()).filter(move |other| !self.is_for(*other, req));
        others.flat_map(|other| [self.reqs[other].asked, self.reqs[other].answer])
    }

    /// The messages of a request and of those that were made for it.
    pub fn messages(&self, req: ReqNo) -> impl Iterator<Item = Message> + '_ {
        self.family(req).flat_map(|other| [self.reqs[other].asked, self.reqs[other].answer])
    }

    /// The request and those that were made for it.
    pub fn family(&self, req: ReqNo) -> impl Iterator<Item = ReqNo> + '_ {
        (0..self.reqs.len()).filter(move |other| self.is_for(*other, req))
    }
}
