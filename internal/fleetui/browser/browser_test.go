// Package browser tests the fleet view in a real browser. It has a Go module of its own, so that the product does not
// depend on the driver of the browser.
package browser

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "write the screenshots of the documentation")

// root is the directory of the repository.
var root, _ = filepath.Abs("../../..")

var browserContext context.Context

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("the tests in a browser are skipped with -short")
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if out, err := exec.Command(root+"/hack/ui", "--install").CombinedOutput(); err != nil {
		fmt.Printf("install the npm packages of ui: %v\n%s", err, out)
		return 1
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.WindowSize(1280, 900), chromedp.Flag("lang", "en-US"))
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			options = append(options, chromedp.ExecPath(path))
			break
		}
	}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	defer end()
	ctx, endBrowser := chromedp.NewContext(allocator)
	defer endBrowser()
	if err := chromedp.Do(ctx); err != nil {
		fmt.Printf("start a browser: %v. On Debian, install the package chromium.\n", err)
		return 1
	}
	browserContext = ctx
	return m.Run()
}

// tab is a page of the browser.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// record sets the clock of the browser and collects what the page must not cause: errors, warnings,
// violations of the content security policy. It also notes when the first agent is in the document.
const record = `Date.now = () => NOW;
window.recorded = [];
for (const name of ['error', 'warn']) console[name] = (...all) => window.recorded.push(name + ': ' + all.join(' '));
addEventListener('error', (e) => window.recorded.push(e.message));
addEventListener('unhandledrejection', (e) => window.recorded.push(String(e.reason)));
new MutationObserver((_, o) => { if (document.querySelector('td.name')) { window.firstAgent = performance.now(); o.disconnect(); } }).observe(document, {subtree: true, childList: true});
addEventListener('securitypolicyviolation', (e) => window.recorded.push('policy: ' + e.violatedDirective + ' ' + e.blockedURI));`

func open(t *testing.T, url string) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browserContext, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	b := &tab{t, ctx}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: strings.ReplaceAll(record, "NOW", fmt.Sprint(now.UnixMilli()))}); err != nil {
		t.Fatal(err)
	}
	b.run(chromedp.Navigate(url))
	return b
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, time.Minute) // ends only a test that hangs
	defer end()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%v; %s", err, b.shown())
	}
}

// shown describes the page for the message of a failed test.
func (b *tab) shown() string {
	ctx, end := context.WithTimeout(b.ctx, 10*time.Second)
	defer end()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText.slice(0, 4000) + '\\n' + window.recorded.join('\\n')"))
	return fmt.Sprintf("the page shows: %s %v", text, err)
}

// js evaluates an expression.
func js[T any](b *tab, expression string, options ...chromedp.EvaluateOption) T {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, time.Minute)
	defer end()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, options...))
	if err != nil {
		b.t.Fatalf("%s: %v; %s", expression[:min(len(expression), 200)], err, b.shown())
	}
	return out
}

// do evaluates an expression without a result.
func (b *tab) do(expression string) {
	b.t.Helper()
	js[chromedp.Void](b, expression)
}

// until waits until an expression is true.
func (b *tab) until(expression string) {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, time.Minute) // ends only a test that hangs
	defer end()
	if _, err := chromedp.Run(ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(50*time.Second))); err != nil {
		b.t.Fatalf("never: %s: %v; %s", expression, err, b.shown())
	}
}

// sees waits until the page shows texts.
func (b *tab) sees(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.until(fmt.Sprintf("document.body.innerText.includes(%s)", quote(text)))
	}
}

// names waits until a table has these names.
func (b *tab) names(want string) {
	b.t.Helper()
	b.until(fmt.Sprintf("Array.from(document.querySelectorAll('td.name a')).map((e) => e.innerText).join(' ') === %s", quote(want)))
}

// press clicks the button or link that starts with a text.
func (b *tab) press(text string) {
	b.t.Helper()
	find := fmt.Sprintf("Array.from(document.querySelectorAll('button, a')).find((e) => e.innerText.replace(/\\s+/g, ' ').trim().startsWith(%s))", quote(text))
	b.until("Boolean(" + find + ")")
	b.do(find + ".click()")
}

// fill writes into an input.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.run(chromedp.Focus(chromedp.CSS(selector)), chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).select()", selector)))
	if text == "" {
		b.run(chromedp.KeyEvent("\b"))
	} else {
		b.run(chromedp.KeyEvent(text))
	}
}

func quote(text string) string {
	out, _ := json.Marshal(text)
	return string(out)
}

// call sends a command to the browser.
func (b *tab) call(command func(context.Context) error) {
	b.t.Helper()
	if err := command(b.ctx); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) dark(on bool) {
	b.t.Helper()
	value := "light"
	if on {
		value = "dark"
	}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}}}); err != nil {
		b.t.Fatal(err)
	}
}

// accessible fails if axe finds a violation.
func (b *tab) accessible(what string) {
	b.t.Helper()
	if !js[bool](b, "Boolean(window.axe)") {
		source, err := os.ReadFile(root + "/ui/node_modules/axe-core/axe.min.js")
		if err != nil {
			b.t.Fatal(err)
		}
		b.do(string(source))
	}
	found := js[[]string](b, `axe.run().then((r) => [...r.violations.flatMap((v) => v.nodes.map((n) => v.id + ': ' + n.html.slice(0, 200) + ' ' + n.failureSummary)), ...(r.passes.length > 10 ? [] : ['axe checked nothing'])])`, chromedp.EvalAwaitPromise)
	for _, one := range found {
		b.t.Errorf("%s: %s", what, one)
	}
}

// inLightAndDark checks a view with both color schemes.
func (b *tab) inLightAndDark(what string) {
	b.t.Helper()
	for _, on := range []bool{true, false} {
		b.dark(on)
		b.accessible(fmt.Sprintf("%s, dark=%v", what, on))
	}
}

// quiet fails if the page caused errors.
func (b *tab) quiet() {
	b.t.Helper()
	if recorded := js[[]string](b, "window.recorded"); len(recorded) > 0 {
		b.t.Errorf("console: %q", recorded)
	}
}
