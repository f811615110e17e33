//! The demos, as users start them.

mod crawler;
mod flash_sale;
mod invoices;
mod play;
mod recovery;
