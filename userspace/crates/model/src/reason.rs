//! Why a request is incomplete.

use serde::{Deserialize, Serialize};

use crate::worded;

named! {
    /// One end of a request, as named in a sentence.
    Who {
        Client = "the client",
        Server = "the server",
    }
}

named! {
    /// Why framing was lost on a connection: it is no longer known where messages begin.
    GapWhy {
        Unseen = "bytes moved unseen",
        Senseless = "bytes made no sense or could not be read",
        Long = "a call moved more messages than are looked at",
        Busy = "two CPUs worked on it at the same time",
        Forgotten = "there are more connections than can be followed",
        Reopened = "it had ended, and a new connection between the same endpoints began",
    }
}

worded! {
    /// Why a request is incomplete: column `reason` of `requests.parquet`.
    Reason {
        /// The beginning of the request was not seen.
        BeganBefore = "it began before the capture",
        /// The request outlived the limit of events that are kept.
        BeginForgotten { most_events: u64 } = "its begin was forgotten, more than {most_events} events before",
        RecordsLost = "records were lost while it was under way",
        /// The answer may be among the lost records.
        RecordsLostBeforeAnswer = "records were lost before its answer",
        /// The answer may belong to another request.
        RecordsLostBefore = "records were lost before it: which answer belongs to it is not known",
        /// The answer may be in the part of the connection that could not be followed.
        NotFollowed { why: GapWhy } = "its connection could not be followed: {why}",
        /// The answer may belong to another request.
        NotFollowedBefore { why: GapWhy } =
            "its connection could not be followed before it ({why}): which answer belongs to it is not known",
        ChannelForgotten =
            "its channel was dropped from a full table: since then, bytes cannot be assigned to requests",
        CaptureEnded = "the capture ended before the answer",
        /// Of a program: it was still running.
        CaptureEndedBefore = "the capture ended before it did",
        /// Of the target: its release counts as its beginning.
        ExecLost = "the record of its execve() was lost, it counts from its release",
        /// Of a program: there is no end in its parent.
        NeverWaitedFor = "its parent never waited for it",
        /// As above, while the capture went on.
        NotWaitedFor = "its parent had not waited for it ten seconds after it exited",
        Exited { who: Who, status: i32 } = "{who} exited with status {status} before the answer",
        Killed { who: Who, signal: i32 } = "{who} was killed by signal {signal} before the answer",
        Closed { who: Who } = "{who} closed the connection before the answer",
        /// HTTP/2: RST_STREAM.
        Reset { who: Who, code: u32 } = "{who} reset the stream, with error {code}",
        /// HTTP/2: GOAWAY.
        Refused = "the server sent GOAWAY and did not process it",
        AnswerUnread = "the client has not read all of the answer",
        AnswerUnwritten = "the server has not written all of the answer",
        /// The writer of part of the answer was not seen, so the answer may be longer.
        WriterUnseen = "the writer of part of its answer was not seen",
        DatagramUnseen = "which datagram the server read was not seen",
        /// The server may have been mistaken for the client.
        AskerUnknown = "records of the beginning of its channel were lost: which end is the client is not known",
        /// As above, for turns in shared memory.
        WordOlder = "its futex word is older than the capture: which side is the client is not known",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the texts in files, which readers and documents rely on.
    #[test]
    fn reasons_are_read_back_from_their_texts() {
        use {Reason::*, Who::*};
        let all = [
            (BeganBefore, "it began before the capture"),
            (
                BeginForgotten { most_events: 262_144 },
                "its begin was forgotten, more than 262144 events before",
            ),
            (RecordsLost, "records were lost while it was under way"),
            (RecordsLostBeforeAnswer, "records were lost before its answer"),
            (
                RecordsLostBefore,
                "records were lost before it: which answer belongs to it is not known",
            ),
            (
                NotFollowed { why: GapWhy::Busy },
                "its connection could not be followed: two CPUs worked on it at the same time",
            ),
            (
                NotFollowedBefore { why: GapWhy::Unseen },
                "its connection could not be followed before it (bytes moved unseen): which answer belongs to it \
                 is not known",
            ),
            (
                ChannelForgotten,
                "its channel was dropped from a full table: since then, bytes cannot be assigned to requests",
            ),
            (CaptureEnded, "the capture ended before the answer"),
            (CaptureEndedBefore, "the capture ended before it did"),
            (ExecLost, "the record of its execve() was lost, it counts from its release"),
            (NeverWaitedFor, "its parent never waited for it"),
            (NotWaitedFor, "its parent had not waited for it ten seconds after it exited"),
            (
                Exited { who: Client, status: 255 },
                "the client exited with status 255 before the answer",
            ),
            (
                Killed { who: Server, signal: 9 },
                "the server was killed by signal 9 before the answer",
            ),
            (Closed { who: Server }, "the server closed the connection before the answer"),
            (Reset { who: Client, code: 8 }, "the client reset the stream, with error 8"),
            (Refused, "the server sent GOAWAY and did not process it"),
            (AnswerUnread, "the client has not read all of the answer"),
            (AnswerUnwritten, "the server has not written all of the answer"),
            (WriterUnseen, "the writer of part of its answer was not seen"),
            (DatagramUnseen, "which datagram the server read was not seen"),
            (
                AskerUnknown,
                "records of the beginning of its channel were lost: which end is the client is not known",
            ),
            (
                WordOlder,
                "its futex word is older than the capture: which side is the client is not known",
            ),
        ];
        for (reason, text) in all {
            assert_eq!(reason.to_string(), text);
            assert_eq!(Reason::from(text), reason);
        }
        for why in GapWhy::ALL {
            let reason = NotFollowedBefore { why: *why };
            assert_eq!(Reason::from(&*reason.to_string()), reason);
        }
        let other = "the sun stood still";
        assert_eq!(Reason::from(other), Other(other.into()));
        assert_eq!(Reason::from(other).to_string(), other);
    }
}
