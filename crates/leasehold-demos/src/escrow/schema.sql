-- Purpose: the tables of the escrow demo, in words that SQLite and PostgreSQL know (`integer` becomes `bigint`). Nothing
-- here guards the invariant: no key is unique but row ids.

-- Deposits, by the books of the bank. Written by the bank before it announces them.
create table bank (tx_hash text, deal integer, amount integer);

-- `fence` is the latest holder of the deal's lock that opened the row, if the locks are elsewhere; `ordered` is the fence of the latest order to pay.
create table deals (
    id integer primary key,
    buyer integer, seller integer, amount integer,
    state text, escrow integer not null default 0,
    fence integer not null default 0, ordered integer not null default 0
);
create table history (id integer primary key, deal integer, was text, became text, by text);
create index history_of_deals on history (deal);

create table accounts (id integer primary key, name text, balance integer, fence integer not null default 0);
-- Every movement of money: deposit, payout, fee, refund.
create table entries (deal integer, kind text, account integer, amount integer, by text);
create index entries_of_accounts on entries (account);

-- Messages that transitions ask for, written together with them: notifications, and orders to pay.
create table outbox (
    id integer primary key,
    deal integer, kind text, text text, fence integer, sent integer not null default 0
);
create index unsent on outbox (id) where sent = 0;
-- The fence of the latest poller, in one row.
create table poller (id integer primary key, fence integer);
insert into poller (id, fence) values (1, 0);
create table notifications (outbox_id integer, text text);

-- Stands for a message broker: a message that is not settled becomes visible again, as it was.
create table messages (
    id integer primary key, kind text, deal integer, tx_hash text, fence integer,
    visible_ms integer not null default 0, deliveries integer not null default 0, outcome text
);
create index open_messages on messages (visible_ms, id) where outcome is null;

create table reconciliations (id integer primary key, run integer, by text, fence integer, difference integer, wrong integer);

create table addresses (name text primary key, port integer);
-- The outcome of each deal, as its traders saw it, and how often they got "409, busy".
create table ended (deal integer primary key, state text, busy integer);
