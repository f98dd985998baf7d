//! The help: the keys, and the meaning of the columns.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::super::app::{HISTORY, RECENT};
use super::super::theme::{Theme, Tone};

const KEYS: [(&str, &str); 9] = [
    ("↑ ↓  k j", "select an engine (also PgUp, PgDn, Home, End)"),
    ("← →  h l", "sort by another column"),
    ("r", "reverse the order"),
    ("Enter", "charts and ranks of the engine; again or Esc: back"),
    ("Tab", "move through the GPUs, or back through the engines"),
    ("Space  p", "stop and continue reading"),
    ("?", "this help"),
    ("Ctrl-Z", "suspend"),
    ("q  Ctrl-C", "quit"),
];

pub(super) fn draw(frame: &mut Frame<'_>, theme: Theme) {
    let columns = [
        ("STATE", "what limits the engine, if it is worth a look; else its state".to_owned()),
        (
            "ACTIVE …",
            "requests: active, in the queue (an estimate for PyTorch), waiting for the batch, paused".to_owned(),
        ),
        ("GEN CTX", format!("tokens/s generated, and computed in context phases; {RECENT} s")),
        ("ITER", format!("duration of an iteration: mean and 99 % of the last {RECENT} s")),
        ("TTFT", format!("time to the first token: 50 % and 95 % of the last {RECENT} s")),
        ("TPOT", format!("time per output token: 50 % and 95 % of the last {RECENT} s")),
        ("KV", format!("blocks in use; blocks found again in the last {RECENT} s")),
        ("WHY", "what limits the engine, or the cause of its state".to_owned()),
        ("-", "not known, or nothing happened".to_owned()),
        ("[sim]", "a simulated engine".to_owned()),
        ("charts", format!("of the selected engine, {} minutes", HISTORY / 60.0)),
    ];
    let line = |key: &str, text: &str| {
        Line::from(vec![Span::styled(format!(" {key:<11}"), theme.style(Tone::Title)), Span::raw(text.to_owned())])
    };
    let mut lines: Vec<Line<'_>> = KEYS.iter().map(|(key, text)| line(key, text)).collect();
    lines.push(Line::default());
    lines.extend(columns.iter().map(|(key, text)| line(key, text)));
    let width = lines.iter().map(Line::width).max().unwrap_or(0) + 3;
    let area = centred(frame.area(), width as u16, lines.len() as u16 + 2);
    let block = Block::bordered().title(Span::styled(" Help ", theme.style(Tone::Title)));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}
