package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

const statementType = "application/vnd.in-toto+json"

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// writeProvenance writes an in-toto statement with the predicate of SLSA 1.0: the artifacts, their commit, and the Go
// version. If there is a key, it also writes the statement in a signed DSSE envelope.
func (r *release) writeProvenance(context.Context) error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	var subjects []subject
	for _, s := range sums {
		subjects = append(subjects, subject{s.name, map[string]string{"sha256": s.sum}})
	}
	statement, err := json.Marshal(map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"predicateType": "https://slsa.dev/provenance/v1",
		"subject":       subjects,
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":          source + "/tools/release@v1",
				"externalParameters": map[string]any{"version": r.version, "image": r.image, "pinnedOverlays": r.pinned},
				"resolvedDependencies": []any{map[string]any{
					"uri": "git+" + source, "digest": map[string]string{"gitCommit": r.commit},
				}},
			},
			"runDetails": map[string]any{
				"builder": map[string]any{"id": source + "/tools/release", "version": map[string]string{"go": runtime.Version()}},
			},
		},
	})
	if err != nil {
		return err
	}
	if err := r.write("provenance.json", append(statement, '\n')); err != nil || r.key == "" {
		return err
	}
	key, err := readKey(r.key)
	if err != nil {
		return err
	}
	signature, err := sign(key, fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(statementType), statementType, len(statement), statement))
	if err != nil {
		return err
	}
	envelope, err := json.Marshal(map[string]any{
		"payloadType": statementType, "payload": statement, "signatures": []any{map[string]string{"sig": signature}},
	})
	if err != nil {
		return err
	}
	return r.write("provenance.intoto.jsonl", append(envelope, '\n'))
}

// writeChecksums writes the SHA-256 of every artifact, in the format of sha256sum. If there is a key, it signs this file.
// openssl dgst and cosign verify-blob accept the signature.
func (r *release) writeChecksums(context.Context) error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	var list bytes.Buffer
	for _, s := range sums {
		fmt.Fprintf(&list, "%s  %s\n", s.sum, s.name)
	}
	if err := r.write("checksums.txt", list.Bytes()); err != nil || r.key == "" {
		return err
	}
	key, err := readKey(r.key)
	if err != nil {
		return err
	}
	signature, err := sign(key, list.Bytes())
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	return errors.Join(
		r.write("checksums.txt.sig", []byte(signature+"\n")),
		r.write("checksums.txt.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})))
}

type sum struct{ name, sum string }

// sums returns the checksums of the artifacts so far.
func (r *release) sums() (sums []sum, err error) {
	names, err := r.artifacts()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		content, err := os.ReadFile(r.artifact(name))
		if err != nil {
			return nil, err
		}
		hash := sha256.Sum256(content)
		sums = append(sums, sum{name, hex.EncodeToString(hash[:])})
	}
	return sums, nil
}

// sign returns a signature in base64. It is deterministic (RFC 6979), so that two runs give the same bytes.
func sign(key *ecdsa.PrivateKey, content []byte) (string, error) {
	hash := sha256.Sum256(content)
	signature, err := key.Sign(nil, hash[:], crypto.SHA256)
	return base64.StdEncoding.EncodeToString(signature), err
}

// readKey reads an ECDSA key, or creates it if the file does not exist.
func readKey(name string) (*ecdsa.PrivateKey, error) {
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return createKey(name)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, fmt.Errorf("%s has no PEM block", name)
	}
	if block.Type == "EC PRIVATE KEY" {
		return x509.ParseECPrivateKey(block.Bytes)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s is not an ECDSA key", name)
	}
	return key, nil
}

func createKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	content, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	fmt.Printf("created the key %s\n", name)
	return key, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: content}), 0o600)
}
