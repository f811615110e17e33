//! The terminal while it is ours, and how it is given back: whatever ends the program, the user gets a screen that works.

use std::{
    io::{self, Stdout},
    mem::ManuallyDrop,
    panic,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::Show,
        event::{self, Event},
        execute,
        terminal::{
            Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
        },
    },
};
use tokio::sync::mpsc;

use super::{
    model::Top,
    view::{self, Theme},
};
use crate::command::kernel;

pub(super) struct Screen {
    /// Its own end would report a terminal that is gone to that terminal, and panic.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    theme: Theme,
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        // Made first: it gives back what is entered in part.
        let screen = Self { terminal: terminal()?, theme: Theme::of_environment() };
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            leave();
            before(info);
        }));
        enter()?;
        Ok(screen)
    }

    pub(super) fn draw(&mut self, top: &mut Top) -> io::Result<()> {
        let height = self.terminal.size()?.height;
        top.fit(view::visible(top, height));
        self.terminal.draw(|frame| view::draw(top, self.theme, frame))?;
        Ok(())
    }

    /// Gives the terminal back, stops as Ctrl-Z does everywhere, and takes it again.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        leave();
        kernel::stop_own_group();
        self.resume()
    }

    /// Takes the terminal again after somebody else had it.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        enter()?;
        // `clear` would ask the terminal for its cursor, and the answer would be read as keys.
        self.terminal = terminal()?;
        Ok(())
    }
}

/// It knows nothing of what is on the screen, so all is drawn.
fn terminal() -> io::Result<ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>> {
    Terminal::new(CrosstermBackend::new(io::stdout())).map(ManuallyDrop::new)
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Whether the terminal is in our mode.
static ENTERED: AtomicBool = AtomicBool::new(false);

fn enter() -> io::Result<()> {
    ENTERED.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All))
}

/// A terminal that is gone needs nothing.
fn leave() {
    if ENTERED.swap(false, Ordering::SeqCst) {
        let _gone = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _gone = disable_raw_mode();
    }
}

/// Keys and changes of the size. They are read by a thread of its own: the reader of the terminal never returns once that
/// has hung up.
pub(super) fn events() -> io::Result<mpsc::Receiver<io::Result<Event>>> {
    let (sender, receiver) = mpsc::channel(64);
    thread::Builder::new().name("keyboard".into()).spawn(move || {
        loop {
            let event = event::read();
            let is_last = event.is_err();
            if sender.blocking_send(event).is_err() || is_last {
                break;
            }
        }
    })?;
    Ok(receiver)
}
