package identity

import "crypto/tls"

// AnyClientTLS returns the configuration of an HTTPS server with the certificate of a ServerTLS. It requests a certificate
// of the client and does not verify it, so the server must.
func AnyClientTLS(base *tls.Config) *tls.Config {
	change := func(of *tls.Config) *tls.Config {
		c := of.Clone()
		c.ClientAuth, c.ClientCAs, c.VerifyConnection, c.NextProtos = tls.RequestClientCert, nil, nil, []string{"h2", "http/1.1"}
		return c
	}
	cfg := change(base)
	if inner := base.GetConfigForClient; inner != nil {
		cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			now, err := inner(hello)
			if err != nil || now == nil {
				return now, err
			}
			return change(now), nil
		}
	}
	return cfg
}
