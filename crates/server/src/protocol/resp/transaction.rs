//! `MULTI` and `EXEC`, which many clients wrap their pipelines in: commands are kept until `EXEC` and then answered in
//! order.
//!
//! Nothing is undone and nobody else is held up meanwhile: each decision is atomic by itself, as without `MULTI`.

use super::parse::{Command, MOST_COMMAND};

/// Commands that wait for `EXEC`.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    /// The commands as a client would send them.
    commands: Vec<u8>,
    count: usize,
    /// One of them made no sense, so none is carried out.
    is_spoilt: bool,
}

impl Transaction {
    /// Keeps a command. False if there are too many.
    pub(super) fn push(&mut self, command: Command<'_>) -> bool {
        let length: usize = command.iter().map(|argument| argument.len() + 16).sum();
        if self.commands.len() + length > MOST_COMMAND {
            self.spoil();
            return false;
        }
        self.commands.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
        for argument in command.iter() {
            self.commands.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            self.commands.extend_from_slice(argument);
            self.commands.extend_from_slice(b"\r\n");
        }
        self.count += 1;
        true
    }

    pub(super) fn spoil(&mut self) {
        self.is_spoilt = true;
        self.commands = Vec::new();
    }

    /// How many commands there are, or `None` if they must not be carried out.
    pub(super) fn count(&self) -> Option<usize> {
        (!self.is_spoilt).then_some(self.count)
    }

    /// The commands, one after the other, as they can be parsed.
    pub(super) fn commands(&self) -> &[u8] {
        &self.commands
    }
}
