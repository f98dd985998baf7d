//! Colours. Each has a contrast of about 4 or more on black and on white, so it is readable on dark and on light terminals. The
//! terminal's own palette does not guarantee such a contrast. Nothing is shown by a colour alone.

use ratatui::style::{Color, Modifier, Style};

/// What a text is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Title,
    Minor,
    Good,
    Info,
    Warning,
    Bad,
    /// A line of a chart, by its index.
    Line(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    pub colors: bool,
}

const GOOD: u8 = 28;
const INFO: u8 = 31;
const WARNING: u8 = 130;
const BAD: u8 = 196;
const MINOR: u8 = 243;
const LINES: [u8; 3] = [31, 130, 133];

impl Theme {
    #[must_use]
    pub fn style(self, tone: Tone) -> Style {
        let plain = Style::new();
        let color = |index: u8| if self.colors { plain.fg(Color::Indexed(index)) } else { plain };
        match tone {
            Tone::Plain => plain,
            Tone::Title => plain.add_modifier(Modifier::BOLD),
            Tone::Minor => color(MINOR),
            Tone::Good => color(GOOD),
            Tone::Info => color(INFO),
            Tone::Warning => color(WARNING).add_modifier(Modifier::BOLD),
            Tone::Bad => color(BAD).add_modifier(Modifier::BOLD),
            Tone::Line(line) => color(LINES[line % LINES.len()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The luminance of a colour of the 6×6×6 cube or of the greys, as WCAG defines it.
    fn luminance(index: u8) -> f64 {
        let level = |step: u8| if step == 0 { 0.0 } else { 55.0 + 40.0 * f64::from(step) };
        let cube = index.wrapping_sub(16);
        let parts = match index {
            232.. => [8.0 + 10.0 * f64::from(index - 232); 3],
            _ => [level(cube / 36), level(cube / 6 % 6), level(cube % 6)],
        };
        let linear = parts.map(|part| {
            let part = part / 255.0;
            if part <= 0.03928 { part / 12.92 } else { ((part + 0.055) / 1.055_f64).powf(2.4) }
        });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    }

    #[test]
    fn every_colour_can_be_read_on_black_and_on_white() {
        for color in [GOOD, INFO, WARNING, BAD, MINOR].into_iter().chain(LINES) {
            let luminance = luminance(color);
            let (on_black, on_white) = ((luminance + 0.05) / 0.05, 1.05 / (luminance + 0.05));
            assert!(on_black.min(on_white) > 3.95, "{color}: {on_black:.2} on black, {on_white:.2} on white");
        }
    }
}
