package browser

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

const maxImage = 150 << 10

// Screenshots of the documentation are written with -update. A changed page does not fail the test, because fonts differ.
func TestScreenshots_OfDocumentation(t *testing.T) {
	t.Parallel()
	rows := many(400)
	rows[7] = held("cluster-00007")
	s := serve(t, rows...)
	s.about["hub"] = "hub.example.com, namespace argocd"
	for i := range 1200 {
		app := application(fmt.Sprintf("cluster-%05d", i/3), []string{"web", "api", "jobs"}[i%3])
		app.Labels = map[string]string{"team": []string{"checkout", "search", "platform", "data"}[i%4]}
		if i%113 == 0 {
			app.Health, app.Sync = "Degraded", "OutOfSync"
		}
		s.model.Set(app)
	}
	b := open(t, s.URL)
	b.sees("400\nagents", "degraded", "live")
	b.until("document.querySelectorAll('.cell.degraded').length > 1")
	b.capture("fleet-light.png")
	b.dark(true)
	b.capture("fleet-dark.png")
	b.dark(false)
	b.do("location.hash = '#/applications?groupBy=label.team&query=health%21%3DHealthy'")
	b.sees("checkout")
	b.capture("fleet-applications.png")

	h := hosting(t, "19")
	b = open(t, h.URL)
	b.until("window.show && registered()")
	b.do("show('tab', {application: " + resource + ", tree: {}})")
	b.sees("Agent d-held")
	b.capture("extension-tab.png")
}

func (b *tab) capture(name string) {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, time.Minute)
	defer end()
	shot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	file := root + "/docs/images/" + name
	if *update {
		if err := os.WriteFile(file, shot, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		b.t.Fatalf("%v: run the test with -update", err)
	}
	image, err := png.DecodeConfig(bytes.NewReader(content))
	if err != nil || image.Width != 1280 || len(content) > maxImage {
		b.t.Errorf("%s: %d bytes, %+v, %v", name, len(content), image, err)
	}
}
