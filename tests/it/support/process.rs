//! A process that ends with its test, even if the test fails.

use std::io::ErrorKind;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};
use std::thread;

#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        // A program that a test has just written is busy while a child of another test still has the file open.
        loop {
            match command.spawn() {
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => thread::yield_now(),
                started => break Self(started.unwrap_or_else(|error| panic!("{command:?}: {error}"))),
            }
        }
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
