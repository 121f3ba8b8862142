//! The program as people use it: each test starts it as a child process and reads what it prints.

mod acks;
mod agents;
mod cost;
mod doctor;
mod evidence;
mod faults;
mod find;
mod foreign;
mod http;
mod load;
mod orders;
mod parent;
mod plans;
mod program;
mod reference;
mod report;
mod results;
mod runs;
mod series;
mod serve;
mod strangers;
mod thresholds;
mod trial;
mod upgrade;
mod usage;
mod web;
