package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
	"github.com/argocd-agent/argocd-agent/lab/gitserver"
	"github.com/argocd-agent/argocd-agent/lab/product"
)

type options struct {
	seed     uint64
	steps    int
	duration time.Duration // if not 0, instead of steps
	older    string        // binary of another release; may be empty
	restores bool          // from snapshots, at the end
	hubs     bool          // with a second hub, and a rebuild at the end
	failover bool          // between the hubs
	file     string        // that gets the curves as CSV; may be empty
	patience time.Duration // how long both sides may take to become equal
	out      io.Writer
}

// longest is how often the patience a fault or its repair may take: some wait several times, and what hangs must fail.
const longest = 10

// stepsBetweenChecks is the number of faults after which everything is repaired and compared.
const stepsBetweenChecks = 5

// drill is a fleet of two agents with what users did.
type drill struct {
	options
	random  *rand.Rand
	lab     *lab.Lab
	product *product.Product
	binary  string // symbolic link that the programs are started with
	current string // binary of this tree
	sites   map[string]*site
	active  string // name of the active hub
	repo    string // URL
	number  int    // of the last edit
	apps    []*app
	objects []*object
	samples []sample
	etcd    map[string]*faultproxy.Link // between the API server of a cluster and etcd

	confirmed, ran int     // commands
	failures       []error // what must not happen
}

func (d *drill) printf(format string, args ...any) {
	fmt.Fprintf(d.out, "%s  %s\n", time.Now().UTC().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// run starts everything, runs the drill and stops everything.
func run(ctx context.Context, o options) (err error) {
	d := &drill{options: o, active: hubName, random: rand.New(rand.NewPCG(o.seed, 0)), sites: map[string]*site{}, etcd: map[string]*faultproxy.Link{}}
	folder, err := os.MkdirTemp("", "drill-")
	if err != nil {
		return err
	}
	keep := false
	defer func() {
		if !keep {
			_ = os.RemoveAll(folder)
		}
	}()
	defer d.stop()
	err = d.start(ctx, folder)
	for _, next := range []func(context.Context) error{d.breakAndCompare, d.switched, d.promotedBehind, d.restored, d.rebuilt} {
		if err == nil {
			err = next(ctx)
		}
	}
	if err = errors.Join(err, d.writeSamples()); err != nil && d.lab == nil {
		return err
	}
	if err != nil {
		keep = true
		saved := filepath.Join(folder, "failure")
		return errors.Join(fmt.Errorf("seed %d: %w", o.seed, err), d.lab.Save(context.WithoutCancel(ctx), saved), fmt.Errorf("logs and objects are in %s", saved))
	}
	d.printf("%d commands were confirmed, and users saw the result of %d. The others belong to deleted Applications, or a request or a hub was lost", d.confirmed, d.ran)
	d.printSamples()
	return nil
}

func (d *drill) start(ctx context.Context, folder string) (err error) {
	d.printf("seed %d: building and starting clusters", d.seed)
	if d.current, err = product.Build(ctx, folder); err != nil {
		return err
	}
	d.binary = filepath.Join(folder, "program")
	if err := os.Symlink(d.current, d.binary); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lab-") // a short path: gpg-agents open sockets in it
	if err != nil {
		return err
	}
	options := lab.Options{Dir: dir, WhilePID: os.Getpid(), Ephemeral: true, Progress: d.out}
	if d.hubs {
		options.Hubs = []string{secondName}
	}
	if d.lab, err = lab.Up(ctx, options); err != nil {
		return err
	}
	if d.product, err = product.NewWithLinks(d.lab, d.binary); err != nil {
		return err
	}
	store, err := d.lab.Repositories()
	if err != nil {
		return err
	}
	if _, err := store.Create(ctx, "drill", gitserver.RepoOptions{Sample: gitserver.SamplePlain}); err != nil {
		return err
	}
	d.repo = d.lab.RepoURL("drill")
	if err := product.PrepareHub(ctx, d.lab); err != nil {
		return err
	}
	d.sites[hubName] = newSite(d.lab.Hub())
	if err := d.startHubs(ctx, folder); err != nil {
		return err
	}
	for _, mode := range []string{managed, autonomous} {
		d.sites[mode] = newSite(d.lab.Cluster(mode))
		a, err := d.product.StartAgent(ctx, mode, mode)
		if err != nil {
			return err
		}
		if err := a.Connected(ctx); err != nil {
			return err
		}
	}
	return d.createObjects(ctx)
}

func (d *drill) stop() {
	if d.product != nil {
		d.product.Close()
	}
	if d.lab != nil {
		_ = d.lab.Down(context.Background())
	}
	for _, link := range d.etcd {
		_ = link.Close()
	}
}

// breakAndCompare injects faults and compares from time to time.
func (d *drill) breakAndCompare(ctx context.Context) error {
	for range 4 { // something to edit
		d.create(ctx, managed)
		d.create(ctx, autonomous)
	}
	if err := d.compare(ctx); err != nil {
		return err
	}
	order, began := d.order(), time.Now()
	for step := 1; ; step++ {
		f := d.pick(order, step)
		d.printf("step %d: %s", step, f.name)
		if err := d.apply(ctx, f, 3+d.random.IntN(5)); err != nil {
			return err
		}
		d.editSome(ctx, d.random.IntN(3))
		last := step >= d.steps
		if d.duration > 0 {
			last = time.Since(began) >= d.duration
		}
		if step%stepsBetweenChecks == 0 || last {
			if err := d.compare(ctx); err != nil {
				return fmt.Errorf("after step %d: %w", step, err)
			}
			if err := d.sample(ctx, time.Since(began)); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

// apply injects a fault, lets users edit, and repairs it.
func (d *drill) apply(ctx context.Context, f fault, edits int) error {
	within := func(do func(context.Context) error) error {
		ctx, cancel := context.WithTimeoutCause(ctx, longest*d.patience, errors.New("it takes too long"))
		defer cancel()
		return do(ctx)
	}
	var repair func(context.Context) error
	if err := within(func(ctx context.Context) (err error) {
		repair, err = f.inject(ctx)
		return err
	}); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	d.editSome(ctx, edits)
	if err := within(repair); err != nil {
		return fmt.Errorf("repair after %s: %w", f.name, err)
	}
	return nil
}
