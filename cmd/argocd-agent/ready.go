package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// checkInterval is the time between two requests of check.
const checkInterval = time.Second

func (p *program) checkCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "check URL",
		Short: "Wait until a URL answers with code 200",
		Long: `Requests a URL once per second until it answers with code 200. The image has no other client, so "helm test"
uses this command.`,
		Example: "  argocd-agent check http://argocd-agent-agent-metrics:8181/metrics",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cmdline.UsageErrorf("URL is missing: name one URL")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return p.waitOK(ctx, args[0])
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "Time after which the command fails.")
	return cmd
}

// waitOK requests a URL until it answers with code 200.
func (p *program) waitOK(ctx context.Context, url string) error {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	var answer error
	for {
		err := requestOK(ctx, url)
		if err == nil {
			fmt.Fprintln(p.stdout, "ok")
			return nil
		}
		if answer == nil || ctx.Err() == nil { // the end of the context is not an answer
			answer = err
		}
		select {
		case <-ctx.Done():
			return answer
		case <-ticker.C:
		}
	}
}

func requestOK(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("request %s: %w", url, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("request %s: %s", url, response.Status)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
