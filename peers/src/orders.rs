//! The other end of a [`Process`](crate::Process): a program that is sent orders.

use std::{
    io::{BufRead, stdin},
    process::exit,
    thread,
};

/// Passes on each line of standard input, on a thread of its own, up to the line `quit`.
///
/// If the input ends without it, whoever started this program is gone. Then it ends at once, whatever it is doing.
pub fn orders(mut pass_on: impl FnMut(String) + Send + 'static) {
    thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            if line == "quit" {
                return;
            }
            pass_on(line);
        }
        exit(1);
    });
}
