package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/query"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// searchFlags are the flags of the command search.
type searchFlags struct {
	groupBy, sort    string
	count, watch     bool
	limit            int
	server, serverCA string
	pod              string // to which a port is forwarded, if it is ready
}

func (p *Program) searchCommand() *cobra.Command {
	var f searchFlags
	cmd := p.withOutput(&cobra.Command{
		Use:   "search [QUERY]",
		Short: "Find Applications of all agents",
		Long: `Finds Applications of all agents in the memory of the principal. You see Applications in namespaces in which you can
list them, of agents that you can get.

A query has terms that are separated by spaces. All of them must match. A term is FIELD OPERATOR VALUE, or a text that
any field contains.

  ` + strings.Join(query.Fields(), " ") + `

  =  !=   equal; several values with commas: health=Degraded,Missing
  ~  !~   contains; * stands for any text: image~nginx:1.2*
  >  <    time: freshness (since hub and agent were in sync), changed (since the last change of health, operation or
          conditions): freshness>1h, changed<10m, changed>7d

Case does not matter. An empty value means none: agent= or label.team!=. Quote values with spaces: label.team="a b". A
revision is the deployed one, and can be a commit hash of at least seven digits.

The principal needs --search-port. The command forwards a local port to its pod. To reach it directly, set --server.`,
		Example: `  # Where does an image run
  argocd-agentctl search 'image~nginx:1.2*'

  # Which Applications are not on a revision
  argocd-agentctl search 'project=shop revision!=4f2a9c1'

  # What drifts from Git
  argocd-agentctl search 'sync=OutOfSync' --sort -changed

  # Which agents have not been in sync for one hour
  argocd-agentctl search 'freshness>1h' --group-by agent

  # Which clusters failed the last rollout
  argocd-agentctl search 'operation=Failed,Error' --group-by agent

  # Follow what is not healthy
  argocd-agentctl search 'health!=Healthy' --watch`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			hub, err := p.hub()
			if err != nil {
				return err
			}
			return hub.withSearch(cmd.Context(), f, func(s *searchClient) error { return p.search(cmd.Context(), s, strings.Join(args, ""), f) })
		},
	})
	flags := cmd.Flags()
	flags.StringVar(&f.groupBy, "group-by", "", "Count Applications by this `FIELD`.")
	flags.BoolVar(&f.count, "count", false, "Print only the number of Applications.")
	flags.BoolVarP(&f.watch, "watch", "w", false, "Print the result and then its changes. With -o json, one update per line.")
	flags.IntVar(&f.limit, "limit", 100, "Maximum `NUMBER` of Applications or groups. 0 means all.")
	flags.StringVar(&f.sort, "sort", "", "Sort by this `FIELD`, or with the prefix - in descending order. If unset, namespace and name.")
	f.addServer(flags)
	return cmd
}

// addServer adds the flags that select the search API.
func (f *searchFlags) addServer(flags *pflag.FlagSet) {
	flags.StringVar(&f.server, "server", "", "`HOST:PORT` of the search API. If unset, a port-forward to the principal.")
	flags.StringVar(&f.serverCA, "server-ca", "", "PEM `FILE` with the CA certificate of --server. If unset, the CAs of this machine.")
}

func (f searchFlags) check() error {
	switch {
	case f.limit < 0:
		return cmdline.UsageErrorf("--limit %d is negative", f.limit)
	case f.watch && (f.count || f.groupBy != ""):
		return cmdline.UsageErrorf("--watch cannot be combined with --count and --group-by")
	case f.count && f.groupBy != "":
		return cmdline.UsageErrorf("--count cannot be combined with --group-by, which also counts")
	case f.serverCA != "" && f.server == "":
		return cmdline.UsageErrorf("--server-ca requires --server")
	}
	return nil
}

func (p *Program) search(ctx context.Context, s *searchClient, text string, f searchFlags) error {
	switch {
	case f.count, f.groupBy != "":
		return p.searchCounts(ctx, s, text, f)
	case f.watch:
		return p.searchWatch(ctx, s, text, f)
	}
	page, err := s.all(ctx, text, f)
	if err != nil {
		return err
	}
	return p.showPage(page)
}

// searchPage is a result. If principal replicas did not answer, the freshness of their agents is older than it could be.
type searchPage struct {
	query.Page
	Unanswered int `json:"unansweredReplicas,omitempty"`
}

type searchCounts struct {
	query.Counts
	Unanswered int `json:"unansweredReplicas,omitempty"`
}

// warnUnanswered prints that freshness may be too old.
func (p *Program) warnUnanswered(replicas int) {
	if replicas > 0 && p.output != asJSON && p.output != asYAML {
		p.warn("%s did not answer. Agents connected there may be in sync more recently than shown.", pluralize(replicas, "principal replica"))
	}
}

func (p *Program) showPage(page searchPage) error {
	defer p.warnUnanswered(page.Unanswered)
	if hidden := page.Total - len(page.Items); hidden > 0 && p.output != asJSON && p.output != asYAML {
		defer p.warn("%d of %s are shown. For more, set --limit.", len(page.Items), pluralize(page.Total, "Application"))
	}
	page.Next, page.Watch = "", ""
	v := view{object: page, headings: []string{"AGENT", "NAMESPACE", "NAME", "HEALTH", "SYNC", "REVISION", "IN SYNC", "CHANGED", "PROJECT", "OPERATION", "CONDITIONS", "IMAGES"}, wide: 4,
		empty: "No Applications found."}
	for i := range page.Items {
		a := &page.Items[i]
		v.names = append(v.names, "application.argoproj.io/"+a.Namespace+"/"+a.Name)
		v.rows = append(v.rows, p.searchRow(a))
	}
	return p.show(v)
}

func (p *Program) searchRow(a *query.Application) []cell {
	var revisions []string
	for _, r := range a.Revisions {
		revisions = append(revisions, shortRevision(r))
	}
	images := strings.Join(a.Images, " ")
	if a.Truncated {
		images += " (truncated)"
	}
	return []cell{c(a.Agent), c(a.Namespace), c(a.Name), {a.Health, stateColor(a.Health, "Healthy")}, {a.Sync, stateColor(a.Sync, "Synced")}, c(strings.Join(revisions, " ")),
		c(p.age(a.InSync)), c(p.age(a.Changed)), c(a.Project), c(a.Operation), c(strings.Join(a.Conditions, " ")), c(images)}
}

func stateColor(state, good string) color {
	if state == good {
		return green
	}
	return yellow
}

// shortRevision abbreviates a commit hash.
func shortRevision(revision string) string {
	if len(revision) == 40 && strings.Trim(revision, "0123456789abcdef") == "" {
		return revision[:8]
	}
	return revision
}

func (p *Program) searchCounts(ctx context.Context, s *searchClient, text string, f searchFlags) error {
	limit := f.limit
	if limit == 0 || limit > query.MaxPage {
		limit = query.MaxPage
	}
	var counts searchCounts
	if err := s.get(ctx, "/v1/counts", text, url.Values{"groupBy": {f.groupBy}, "limit": {strconv.Itoa(limit)}}, &counts); err != nil {
		return err
	}
	if f.count {
		total := strconv.Itoa(counts.Total)
		return p.show(view{object: counts, names: []string{total}, text: total + "\n"})
	}
	defer p.warnUnanswered(counts.Unanswered)
	v := view{object: counts, headings: []string{strings.ToUpper(f.groupBy), "COUNT"}, empty: "No Applications found."}
	for _, g := range counts.Groups {
		v.names = append(v.names, g.Value)
		v.rows = append(v.rows, []cell{c(g.Value), c(strconv.Itoa(g.Count))})
	}
	if counts.More > 0 && p.output != asJSON && p.output != asYAML {
		defer p.warn("%s are not shown. For more, set --limit up to %d.", pluralize(counts.More, "group"), query.MaxPage)
	}
	return p.show(v)
}

// searchWatch prints the result and then its changes until ctx ends. It continues after the end of a stream, and starts
// again if the principal no longer knows the changes.
func (p *Program) searchWatch(ctx context.Context, s *searchClient, text string, f searchFlags) error {
	for ctx.Err() == nil {
		page, err := s.all(ctx, text, f)
		if err != nil {
			return err
		}
		token := page.Watch
		if p.output == asJSON {
			err = p.printUpdate(query.Update{Changed: page.Items, Watch: token})
		} else {
			err = p.showPage(page)
		}
		for err == nil && ctx.Err() == nil {
			err = s.stream(ctx, text, token, func(u query.Update) error {
				token = u.Watch
				return p.printUpdate(u)
			})
		}
		if gone := new(searchError); !errors.As(err, &gone) || gone.code != http.StatusGone {
			return err
		}
		p.warn("The principal no longer knows the changes. The result follows again.")
	}
	return nil
}

func (p *Program) printUpdate(u query.Update) error {
	if p.output == asJSON {
		return json.NewEncoder(p.Stdout).Encode(u)
	}
	at := p.Now().Format(time.TimeOnly)
	for i := range u.Changed {
		a := &u.Changed[i]
		p.say("%s  changed  %s/%s  agent %s  %s  %s", at, a.Namespace, a.Name, a.Agent, a.Health, a.Sync)
	}
	for _, k := range u.Removed {
		p.say("%s  removed  %s/%s", at, k.Namespace, k.Name)
	}
	return nil
}

// searchClient is a client of the search API of the principal.
type searchClient struct {
	base string
	http *http.Client
}

// searchService is the Service of the search API.
const searchService = "argocd-agent-search"

// withSearch calls do with a client of the search API. The client has the credentials of the kubeconfig.
func (c *cluster) withSearch(ctx context.Context, f searchFlags, do func(*searchClient) error) error {
	config := rest.CopyConfig(c.config)
	config.Timeout = 0 // watches are long
	config.CAData, config.CAFile, config.ServerName, config.Insecure = nil, "", "", false
	if f.server != "" {
		if f.serverCA != "" {
			ca, err := os.ReadFile(f.serverCA)
			if err != nil {
				return cmdline.UsageErrorf("read --server-ca: %w", err)
			}
			config.CAData = ca
		}
		return callSearch(config, f.server, do)
	}
	found, err := c.kube.DiscoveryV1().EndpointSlices(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + searchService})
	if err != nil {
		return fmt.Errorf("find the search API: %w", c.explain(err))
	}
	pod, port := podOf(found.Items, f.pod)
	if pod == "" {
		return fmt.Errorf("Service %s of %s has no ready pod: set --search-port of the principal, or --server", searchService, c)
	}
	config.Insecure = true // the port-forward reaches only that pod
	return c.forward(ctx, pod, port, func(address string) error { return callSearch(config, address, do) })
}

func callSearch(config *rest.Config, address string, do func(*searchClient) error) error {
	config.Host = "https://" + address
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("create client for the search API: %w", err)
	}
	return do(&searchClient{base: config.Host, http: client})
}

// searchError is an error of the search API.
type searchError struct {
	code     int
	Message  string `json:"error"`
	Position int    `json:"position"`
	query    string
}

func (e *searchError) Error() string {
	if e.Position > 0 {
		return fmt.Sprintf("%s\n  %s\n  %s^", e.Message, e.query, strings.Repeat(" ", e.Position-1))
	}
	return "search: " + e.Message
}

// all returns the first pages of a result, up to the limit.
func (s *searchClient) all(ctx context.Context, text string, f searchFlags) (searchPage, error) {
	var out searchPage
	for {
		size := query.MaxPage
		if f.limit > 0 {
			size = min(size, f.limit-len(out.Items))
		}
		values := url.Values{"sort": {f.sort}, "limit": {strconv.Itoa(size)}, "page": {out.Next}}
		var page searchPage
		if err := s.get(ctx, "/v1/applications", text, values, &page); err != nil {
			return out, err
		}
		if out.Watch == "" { // changes while later pages are read are reported again
			out.Watch = page.Watch
		}
		out.Items, out.Total, out.Next, out.Unanswered = append(out.Items, page.Items...), page.Total, page.Next, page.Unanswered
		if out.Next == "" || len(out.Items) == f.limit {
			return out, nil
		}
	}
}

func (s *searchClient) get(ctx context.Context, path, text string, values url.Values, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body, err := s.request(ctx, path, text, values)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("read the response of the search API: %w", err)
	}
	return nil
}

// stream calls do for each update until the stream or ctx ends. The principal ends a stream after half an hour.
func (s *searchClient) stream(ctx context.Context, text, token string, do func(query.Update) error) error {
	body, err := s.request(ctx, "/v1/watch", text, url.Values{"watch": {token}})
	if err != nil {
		return err
	}
	defer body.Close()
	decoder := json.NewDecoder(body)
	for {
		var line struct {
			query.Update
			searchError
		}
		if err := decoder.Decode(&line); err != nil {
			if ctx.Err() != nil || errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read changes: %w", err)
		}
		if line.Message != "" {
			return nil // the next request has the same error, with its status
		}
		if err := do(line.Update); err != nil {
			return err
		}
	}
}

func (s *searchClient) request(ctx context.Context, path, text string, values url.Values) (io.ReadCloser, error) {
	if text != "" {
		values.Set("query", text)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path+"?"+values.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := s.http.Do(request)
	if err != nil {
		if outer := new(url.Error); errors.As(err, &outer) {
			err = outer.Err // without the query
		}
		return nil, fmt.Errorf("reach the search API: %w; check --server and --server-ca", err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	failed := &searchError{code: answer.StatusCode, query: text}
	if err := json.NewDecoder(io.LimitReader(answer.Body, 64<<10)).Decode(failed); err != nil || failed.Message == "" {
		failed.Message = answer.Status
	}
	if answer.StatusCode == http.StatusBadRequest {
		return nil, cmdline.UsageErrorf("%w", failed)
	}
	return nil, failed
}
