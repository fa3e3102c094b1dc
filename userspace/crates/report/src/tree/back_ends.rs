//! The servers that requests asked.

use std::collections::HashMap;

use super::links::is_a_program;
use super::names::Names;
use rpcprobe_model::Request;

/// The name of several threads, if it is the same for all of them.
enum Same {
    One(String),
    Several,
}

/// Back ends by number.
#[derive(Default)]
pub(super) struct BackEnds {
    names: Names,
    /// The server thread's name, for back ends with an address.
    comms: HashMap<u16, Same>,
}

impl BackEnds {
    /// Returns the number of the server that a request asked. It is identified by where it listens,
    /// or else by its thread's name.
    pub fn of(&mut self, request: &Request) -> Option<u16> {
        if is_a_program(request.kind) {
            return None;
        }
        let number = self.names.number(request.back_end()?)?;
        if let (Some(_), Some(end)) = (request.listens_at(), &request.server) {
            match self.comms.get_mut(&number) {
                Some(Same::One(comm)) if *comm == end.comm => {}
                Some(same) => *same = Same::Several,
                None => {
                    self.comms.insert(number, Same::One(end.comm.clone()));
                }
            }
        }
        Some(number)
    }

    /// Names a back end, such as `nginx 127.0.0.1:80`, with the parts that are known.
    pub fn name(&self, number: u16) -> String {
        let name = self.names.name(number);
        match self.comms.get(&number) {
            Some(Same::One(comm)) => format!("{comm} {name}"),
            _ => name.to_owned(),
        }
    }
}
