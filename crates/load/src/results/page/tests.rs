//! Tests of the page as text; how it looks is tested in a browser.

use super::unit::escape;
use super::*;
use crate::part::tests::part;
use crate::report::Report;
use crate::report::tests::report;

#[test]
fn what_others_wrote_stays_text() {
    assert_eq!(escape("<script>'&\"</script>"), "&lt;script&gt;&#39;&amp;&quot;&lt;/script&gt;");
}

#[test]
fn a_run_without_a_sample_has_a_page() {
    let page =
        page(&Recorded { report: None, samples: Vec::new(), times: Vec::new(), plan: Some("connections = 3 # <b>".to_owned()) });
    assert!(page.contains("There is no result.") && page.contains("there is nothing to draw"), "{page}");
    assert!(page.contains("connections = 3 # &lt;b&gt;"), "{page}");
}

#[test]
fn each_agent_has_a_row() {
    let agents = vec![part("a", None), part("<b>", Some("it was killed"))];
    let report = Report { agents, ..report() };
    let page = page(&Recorded { report: Some(report), samples: Vec::new(), times: Vec::new(), plan: None });
    assert!(page.contains("<th scope=\"row\">a</th><td>16,667</td><td>48,550</td><td>6</td>"), "{page}");
    assert!(page.contains("&lt;b&gt;, lost: it was killed"), "{page}");
}
