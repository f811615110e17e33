//! A terminal with a program in it, and what a person sees there.

use std::{
    fs::File,
    io::{Read, Write},
    num::NonZeroU16,
    os::fd::OwnedFd,
    process::{Child, Command},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use leasehold_testkit::poll;
use rustix::{
    event::{PollFd, PollFlags},
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
    time::Timespec,
};

use crate::sandbox::{BINARY, LONG, Sandbox};

pub(crate) struct Screen {
    keyboard: Option<File>,
    reader: Option<JoinHandle<()>>,
    is_hung_up: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    child: Child,
}

/// All that was written, and what is on the screen after it.
struct Seen {
    written: Vec<u8>,
    screen: vt100::Parser,
}

const ROWS: u16 = 24;
const COLUMNS: u16 = 160;

impl Screen {
    /// Runs `leasehold` on a new terminal.
    pub(crate) fn leasehold(sandbox: &Sandbox, words: &[&str]) -> Self {
        Self::open(sandbox, &[&[BINARY], words].concat())
    }

    /// `setsid` makes the terminal the program's own, which otherwise needs unsafe code.
    pub(crate) fn open(sandbox: &Sandbox, words: &[&str]) -> Self {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&main).unwrap();
        unlockpt(&main).unwrap();
        let name = ptsname(&main, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let side: OwnedFd = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        tcsetwinsize(&main, size(ROWS, COLUMNS)).unwrap();
        let mut command: Command = sandbox.program("setsid");
        command.env("TERM", "xterm");
        command.args(["--ctty", "--wait", "env", "--default-signal"]).args(words);
        command.stdin(side.try_clone().unwrap()).stdout(side.try_clone().unwrap()).stderr(side);
        let child = command.spawn().unwrap();
        drop(command);
        let (screen, keyboard) = (File::from(main.try_clone().unwrap()), File::from(main));
        let seen = Seen { written: Vec::new(), screen: vt100::Parser::new(number(ROWS), number(COLUMNS), 0) };
        let seen = Arc::new(Mutex::new(seen));
        let is_hung_up = Arc::new(AtomicBool::new(false));
        let (shared, stops) = (seen.clone(), is_hung_up.clone());
        let reader = std::thread::spawn(move || watch(screen, &shared, &stops));
        Self { keyboard: Some(keyboard), reader: Some(reader), is_hung_up, seen, child }
    }

    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap().written).into_owned()
    }

    /// What a person sees now.
    pub(crate) fn picture(&self) -> String {
        self.seen.lock().unwrap().screen.screen().contents()
    }

    pub(crate) fn await_text(&self, text: &str) {
        let seen = poll(LONG, || self.shown().contains(text).then_some(()));
        assert!(seen.is_some(), "{text:?} is not shown: {}", self.shown());
    }

    pub(crate) fn await_picture(&self, what: &str, is_there: impl Fn(&str) -> bool) {
        let seen = poll(LONG, || is_there(&self.picture()).then_some(()));
        assert!(seen.is_some(), "not seen: {what}\n{}", self.picture());
    }

    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.keyboard().write_all(keys.as_bytes()).unwrap();
    }

    fn keyboard(&mut self) -> &mut File {
        self.keyboard.as_mut().expect("it was not hung up")
    }

    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        self.seen.lock().unwrap().screen.screen_mut().set_size(number(rows), number(columns));
        tcsetwinsize(self.keyboard(), size(rows, columns)).unwrap();
    }

    /// Whether the terminal is as a shell wants it: keys are shown, lines are edited, the cursor is there.
    pub(crate) fn is_usable(&mut self) -> bool {
        let modes = tcgetattr(self.keyboard()).unwrap().local_modes;
        let seen = self.seen.lock().unwrap();
        let screen = seen.screen.screen();
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
            && !screen.alternate_screen()
            && !screen.hide_cursor()
    }

    /// Signals the program, which has taken the place of `setsid`.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Closes the terminal, as the end of a connection does.
    pub(crate) fn hang_up(&mut self) {
        self.is_hung_up.store(true, Ordering::SeqCst);
        self.reader.take().expect("it was not hung up").join().unwrap();
        self.keyboard = None;
    }

    pub(crate) fn end(&mut self) -> Option<i32> {
        let status = poll(LONG, || self.child.try_wait().unwrap());
        status.unwrap_or_else(|| panic!("it does not end: {}", self.shown())).code()
    }
}

/// Ends with an error when the last program has left the terminal.
fn watch(mut screen: File, seen: &Mutex<Seen>, is_hung_up: &AtomicBool) {
    let mut buffer = [0; 4096];
    let tick = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while !is_hung_up.load(Ordering::SeqCst) {
        let mut ready = [PollFd::new(&screen, PollFlags::IN)];
        if rustix::event::poll(&mut ready, Some(&tick)) == Ok(0) {
            continue;
        }
        let Ok(length @ 1..) = screen.read(&mut buffer) else { break };
        let mut seen = seen.lock().unwrap();
        seen.written.extend_from_slice(&buffer[..length]);
        seen.screen.process(&buffer[..length]);
    }
}

fn number(of: u16) -> NonZeroU16 {
    of.try_into().unwrap()
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
